//! robots.txt (RFC 9309).

use parking_lot::Mutex;
use portcullis_core::Clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The size that RFC 9309 requires crawlers to read; the rest is ignored.
pub(super) const ROBOTS_BYTES_MAX: usize = 512 * 1024;
/// Cache time. RFC 9309 allows a day; an hour picks up a site's correction sooner.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Sites in the cache.
const SITES_MAX: usize = 256;
/// More rules than sites have for one crawler.
const RULES_MAX: usize = 2_000;
/// The product token in `User-agent` lines.
const PRODUCT: &str = "portcullis";

/// What a site allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Robots {
    /// It has no rules.
    All,
    /// Its rules cannot be fetched, so nothing is allowed.
    Nothing,
    Rules(Vec<RobotsRule>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RobotsRule {
    pattern: String,
    allows: bool,
}

impl Robots {
    /// Parses the group for this crawler, or else the group for all.
    pub(super) fn parse(text: &str) -> Robots {
        let (mut ours, mut everyones) = (Vec::new(), Vec::new());
        let (mut for_us, mut for_everyone, mut found_us, mut in_agents) = (false, false, false, false);
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !in_agents {
                        (for_us, for_everyone) = (false, false);
                    }
                    in_agents = true;
                    for_us |= value.eq_ignore_ascii_case(PRODUCT);
                    for_everyone |= value == "*";
                    found_us |= for_us;
                }
                "allow" | "disallow" => {
                    in_agents = false;
                    // An empty `Disallow:` forbids nothing.
                    if value.is_empty() {
                        continue;
                    }
                    let rule = RobotsRule { pattern: value.to_owned(), allows: key == "allow" };
                    if for_us && ours.len() < RULES_MAX {
                        ours.push(rule.clone());
                    }
                    if for_everyone && everyones.len() < RULES_MAX {
                        everyones.push(rule);
                    }
                }
                _ => {}
            }
        }
        Robots::Rules(if found_us { ours } else { everyones })
    }

    /// Returns whether a path with its query may be fetched: the longest rule decides, and `Allow` wins a tie.
    pub(super) fn allows(&self, path: &str) -> bool {
        match self {
            Robots::All => true,
            Robots::Nothing => false,
            Robots::Rules(rules) => {
                let matching = rules.iter().filter(|rule| matches(&rule.pattern, path));
                matching.max_by_key(|rule| (rule.pattern.len(), rule.allows)).is_none_or(|rule| rule.allows)
            }
        }
    }
}

/// Matches a path against a pattern; `*` is any text, a final `$` the end.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, to_the_end) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut pieces = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    // The earliest match is as good as any, but the last piece must match at the end.
    let last = if to_the_end { pieces.pop() } else { None };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    match (to_the_end, last) {
        (false, _) => true,
        (true, Some(last)) => rest.ends_with(last),
        (true, None) => rest.is_empty(),
    }
}

/// A cache of robots.txt rules by site.
pub(super) struct RobotsCache {
    clock: Arc<dyn Clock>,
    sites: Mutex<HashMap<String, (Duration, Arc<Robots>)>>,
}

impl RobotsCache {
    pub(super) fn new(clock: Arc<dyn Clock>) -> RobotsCache {
        RobotsCache { clock, sites: Mutex::default() }
    }

    pub(super) fn get(&self, site: &str) -> Option<Arc<Robots>> {
        let sites = self.sites.lock();
        let (since, robots) = sites.get(site)?;
        (self.clock.since_epoch().saturating_sub(*since) < KEPT).then(|| robots.clone())
    }

    pub(super) fn keep(&self, site: String, robots: Arc<Robots>) {
        let mut sites = self.sites.lock();
        if sites.len() >= SITES_MAX && !sites.contains_key(&site) {
            let oldest = sites.iter().min_by_key(|(_, (since, _))| *since).map(|(site, _)| site.clone());
            oldest.and_then(|oldest| sites.remove(&oldest));
        }
        sites.insert(site, (self.clock.since_epoch(), robots));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_for_us_decides() {
        let robots = Robots::parse(
            "# a comment\nUser-agent: other\nDisallow: /\n\nUser-Agent: Portcullis\nuser-agent: another\n\
             Disallow: /private # why\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow: /a*b*c\nDisallow:\n\
             Sitemap: x\n\nUser-agent: *\nDisallow: /\n",
        );
        for (path, allowed) in [
            ("/", true),
            ("/private", false),
            ("/private/x", false),
            ("/private/open/x", true),
            ("/x.pdf", false),
            ("/x.pdf?y", true),
            ("/a-b-c-d", false),
            ("/a-c-b", true),
        ] {
            assert_eq!(robots.allows(path), allowed, "{path}");
        }
    }

    #[test]
    fn without_rules_for_us_those_for_everyone_count() {
        let robots = Robots::parse("User-agent: *\nDisallow: /x\nAllow: /x\n");
        assert!(robots.allows("/x"), "allow wins a tie");
        assert!(!Robots::parse("User-agent: *\nDisallow: /\n").allows("/x"));
        assert!(Robots::parse("Disallow: /\nnonsense\n\0:\n").allows("/x"), "rules without a user agent");
        assert!(Robots::parse("").allows("/x"));
        // Many wildcards still take bounded time.
        let stars = format!("User-agent: *\nDisallow: /{}\n", "*a".repeat(50_000));
        assert!(Robots::parse(&stars).allows(&format!("/{}", "a".repeat(8_000))));
    }
}
