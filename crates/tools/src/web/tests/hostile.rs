//! Pages made for denial of service: large, deep, and malformed in every way.

use super::super::{ReadableText, of_html};
use super::pages::budget;
use super::site::{WebFixtureSite, html};
use portcullis_egress::Url;
use std::time::{Duration, Instant};

const MB: usize = 1024 * 1024;
/// Less than the body limit, so that a debug build is done soon; superlinear behavior still shows.
const LARGE: usize = 2 * MB;
/// The smallest stack of a runtime thread; no page may need more.
const STACK_BYTES: usize = 256 * 1024;
/// Generous: quadratic behavior at these sizes takes hours.
const PATIENCE: Duration = Duration::from_secs(120);

/// Converts a page on a small stack. Recursion would abort the process.
fn read(page: String) -> ReadableText {
    let convert = move || of_html(&page, &Url::parse("https://site.test/").unwrap(), &budget());
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(convert).unwrap().join().unwrap()
}

fn pages() -> Vec<(&'static str, String)> {
    let filled = |piece: &str| piece.repeat(LARGE / piece.len());
    vec![
        ("nested div", "<div>".repeat(100_000) + "deep"),
        ("nested and closed", "<div>".repeat(100_000) + "deep" + &"</div>".repeat(100_000)),
        ("nested inline", "<b><i>".repeat(100_000) + "deep"),
        ("nested lists", "<ul><li>x".repeat(50_000)),
        ("nested tables", "<table><tr><td>".repeat(50_000) + "deep"),
        ("nested quotes", "<blockquote>q".repeat(50_000)),
        ("nested hidden", "<svg><noscript hidden>".repeat(50_000)),
        ("nested anchors", "<a href=x>".repeat(100_000) + "deep"),
        ("unclosed tags", filled("<p><span><b>x")),
        ("end tags", filled("</div></b></p></table>")),
        ("end tags in depth", "<div>".repeat(200) + &filled("</b></span></x>")),
        ("links", filled("<a href=x>y</a>")),
        ("images", filled("<img src=x alt=y>")),
        ("one attribute", format!("<a href='{}'>x</a>", "a".repeat(LARGE))),
        (
            "many attributes",
            format!("<a {}>x</a>", (0..400_000).map(|n| format!("a{n}=b ")).collect::<String>()),
        ),
        ("many known attributes", format!("<a {}>x</a>", filled("href=x class=y "))),
        ("entities", filled("&lt;&amp;&notit;&#x10ffff;&#0;&")),
        ("comments", filled("<!-- x -->")),
        ("open comment", format!("<!--{}", "-".repeat(LARGE))),
        ("script", format!("<script>{}", filled("</scrip <!-- <script "))),
        ("style", format!("<style>{}", filled("</styl"))),
        ("title", format!("<title>{}", "t".repeat(LARGE))),
        ("rows", format!("<table>{}", filled("<tr><td>x<td>y"))),
        ("wide table", format!("<table><tr>{}<tr><td>x", filled("<td>x"))),
        ("long table, one wide row", format!("<table><tr>{}{}", "<td>x".repeat(40), filled("<tr><td>y"))),
        ("headings", filled("<h1>x")),
        ("code", format!("<pre>{}", filled("<code>`</code>\n"))),
        ("ticks", format!("<pre>{}", "`".repeat(LARGE))),
        ("breaks", filled("<br>")),
        ("angles", "<".repeat(LARGE)),
        ("nulls", "\0".repeat(LARGE)),
        ("one word", "x".repeat(LARGE)),
        ("classes", filled("<div class='sidebar share'><p>x")),
        ("cdata", filled("<![CDATA[x]]>")),
        ("doctypes", filled("<!DOCTYPE html PUBLIC 'x' 'y'>")),
    ]
}

#[test]
fn no_page_takes_more_than_its_share() {
    for (name, page) in pages() {
        let start = Instant::now();
        let readable = read(page);
        let (took, bytes) = (start.elapsed(), readable.content.len());
        eprintln!("{name}: {} ms, {bytes} bytes, incomplete: {}", took.as_millis(), readable.incomplete);
        assert!(took < PATIENCE, "{name}: {took:?}");
        assert!(bytes < 8 * MB, "{name}: {bytes} bytes");
    }
}

/// Control: recursion with one frame per level.
fn weak_depth(levels: &[u8]) -> usize {
    let frame = std::hint::black_box([0_u8; 64]);
    match levels {
        [] => 0,
        [_, rest @ ..] => 1 + weak_depth(rest) + usize::from(frame[levels.len() % 64]),
    }
}

#[test]
fn a_walk_that_recurses_dies_of_the_same_depth() {
    const VARIABLE: &str = "PORTCULLIS_TEST_RECURSE";
    if let Some(depth) = std::env::var(VARIABLE).ok().and_then(|depth| depth.parse().ok()) {
        let levels = vec![0; depth];
        let walk = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || weak_depth(&levels));
        assert_eq!(walk.unwrap().join().unwrap(), depth);
        return;
    }
    let survives = |depth: &str| {
        let name = "web::tests::hostile::a_walk_that_recurses_dies_of_the_same_depth";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env(VARIABLE, depth).output().unwrap().status.success()
    };
    assert!(survives("500") && !survives("100000"));
}

#[tokio::test]
async fn time_that_is_spent_ends_a_page_early() {
    let page = "<p>text".repeat(100_000);
    let spent = super::super::ConversionBudget { until: Instant::now(), given_up: Default::default() };
    let readable = of_html(&page, &Url::parse("https://site.test/").unwrap(), &spent);
    assert!(readable.incomplete && readable.content.len() < 100_000);
}

#[tokio::test]
async fn the_hub_answers_after_a_hostile_page() {
    let site = WebFixtureSite::open(|path| match path {
        "/deep" => html(&"<div>".repeat(100_000)),
        _ => html("<p>fine"),
    });
    let hub = site.hub();
    assert_eq!(site.facts(&hub, "/deep", "").await["content"], "");
    assert_eq!(site.facts(&hub, "/fine", "").await["content"], "fine");
}
