//! Invented scripts: one that is approved, one that changed since, one that an agent proposed.

use crate::data::{HOSTILE, ago};
use jiff::Timestamp;
use portcullis_admin::Problem;
use portcullis_admin::desk::*;
use serde_json::json;

const REPORT: &str = "# @description Sums up yesterday's tickets and writes them to a note.\n# @author marta\n# @version 1.2\n# @secrets TICKETS_TOKEN\n# @hosts tickets.example\n# @tools memory_write\n\n\ndef lines(tickets):\n    \"\"\"One line for each ticket.\"\"\"\n    return [\"%s: %s\" % (t[\"id\"], t[\"title\"]) for t in tickets]\n\n\ndef main():\n    answer = http.get(\n        \"https://tickets.example/api/tickets?since=1d\",\n        headers = {\"Authorization\": secrets.get(\"TICKETS_TOKEN\")},\n    )\n    found = json.decode(answer.body)\n    if len(found) == 0:\n        return \"nothing new\"\n    tools.call(\"memory_write\", text = \"\\n\".join(lines(found)))\n    return len(found)  # integers stay integers: 42\n";

pub(crate) struct DemoScripts;

fn capabilities(secrets: &[&str], hosts: &[&str], tools: &[&str]) -> Capabilities {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    Capabilities { secrets: texts(secrets), hosts: texts(hosts), tools: texts(tools) }
}

fn brief(name: &str, state: &str) -> ScriptBrief {
    let had = capabilities(&["TICKETS_TOKEN"], &["tickets.example"], &[]);
    ScriptBrief {
        name: name.into(),
        state: state.into(),
        sha256: format!("{:0<64}", name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
        seen: usize::from(state != "pending"),
        description: Some(if name == "cleanup.star" {
            HOSTILE.into()
        } else {
            "Sums up yesterday's tickets and writes them to a note.".into()
        }),
        author: Some("marta".into()),
        version: Some("1.2".into()),
        wanted: capabilities(&["TICKETS_TOKEN"], &["tickets.example"], &["memory_write"]),
        granted: if state == "pending" { Capabilities::default() } else { had },
        proposed_by: (state == "pending").then(|| "research".into()),
        decided_by: (state != "pending").then(|| "marta".into()),
        decided_at: (state != "pending").then(|| ago(60 * 24 * 5)),
        expires: None,
        reason: None,
    }
}

fn all() -> Vec<ScriptBrief> {
    vec![brief("weekly.star", "approved"), brief("report.star", "changed"), brief("cleanup.star", "pending")]
}

fn ready<'a, T: Send + 'a>(answer: Result<T, Problem>) -> Answer<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn find(name: &str) -> Result<ScriptBrief, Problem> {
    all()
        .into_iter()
        .find(|one| one.name == name)
        .ok_or_else(|| Problem::not_found("no script has that name"))
}

impl ScriptDesk for DemoScripts {
    fn list(&self) -> Answer<'_, Scripts> {
        ready(Ok(Scripts { scripts: all() }))
    }

    fn whole(&self, name: String) -> Answer<'_, ScriptWhole> {
        ready(find(&name).map(|brief| {
            let changed = brief.state == "changed";
            let before = REPORT
                .replace("# @tools memory_write\n", "")
                .replace("    tools.call(\"memory_write\", text = \"\\n\".join(lines(found)))\n", "")
                .replace("since=1d", "since=7d");
            let text =
                if brief.state == "pending" { format!("{REPORT}# {HOSTILE}\n") } else { REPORT.into() };
            ScriptWhole {
                change: changed.then(|| TextChange {
                    before: Some(before),
                    after: Some(text.clone()),
                    lines: Vec::new(),
                }),
                capabilities_added: if changed {
                    capabilities(&[], &[], &["memory_write"])
                } else {
                    Capabilities::default()
                },
                capabilities_removed: Capabilities::default(),
                problem: None,
                versions: vec![
                    ScriptVersion {
                        sha256: brief.sha256.clone(),
                        at: ago(30),
                        by: "marta".into(),
                        state: brief.state.clone(),
                    },
                    ScriptVersion {
                        sha256: "ab12".repeat(16),
                        at: ago(60 * 24 * 5),
                        by: "marta".into(),
                        state: "approved".into(),
                    },
                ],
                runs: vec![
                    ScriptRun {
                        at: ago(60),
                        sha256: "ab12".repeat(16),
                        client: "laptop".into(),
                        duration_us: 341_000,
                        outcome: "ok".into(),
                    },
                    ScriptRun {
                        at: ago(60 * 24),
                        sha256: "ab12".repeat(16),
                        client: "laptop".into(),
                        duration_us: 2_000_000,
                        outcome: "timeout".into(),
                    },
                ],
                text,
                brief,
            }
        }))
    }

    fn version(&self, _: String, sha256: String) -> Answer<'_, ScriptText> {
        ready(Ok(ScriptText { sha256, text: REPORT.replace("1.2", "1.1") }))
    }

    fn approve(&self, name: String, _: ApproveScript, _: Actor) -> Answer<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn reject(&self, name: String, _: RejectScript, _: Actor) -> Answer<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn save(&self, name: String, _: SaveScript, _: Actor) -> Answer<'_, ScriptBrief> {
        ready(if name.ends_with(".star") && !name.contains('/') {
            Ok(brief(&name, "pending"))
        } else {
            Err(Problem::invalid("a script is named like report.star"))
        })
    }

    fn restore(&self, name: String, _: RestoreScript, _: Actor) -> Answer<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn remove(&self, name: String, _: Actor) -> Answer<'_, Done> {
        ready(Ok(Done { said: format!("Script `{name}` is removed.") }))
    }

    fn dry_run(&self, run: DryRun, _: Actor) -> Answer<'_, DryRan> {
        let value = json!({ "lines": run.text.lines().count() });
        ready(Ok(DryRan {
            value: Some(value),
            printed: format!("ran at {}\n", Timestamp::UNIX_EPOCH),
            problem: None,
            duration_us: 4_321,
        }))
    }
}
