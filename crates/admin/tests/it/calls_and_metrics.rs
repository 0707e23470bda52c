//! Lists of calls, charts and the onboarding checklist.

use crate::support::AdminFixture;
use axum::http::{StatusCode, header};

/// Returns the texts between two marks.
fn between<'t>(text: &'t str, from: &str, to: &str) -> Vec<&'t str> {
    text.split(from).skip(1).filter_map(|rest| rest.split(to).next()).collect()
}

#[tokio::test]
async fn a_call_is_one_row_that_leads_to_its_details() {
    let hub = AdminFixture::signed_in().await;
    let calls = hub.get("/admin/audit").await.text;
    let rows = between(&calls, "<a class=\"name\" href=\"/admin/audit/", "\"");
    assert_eq!(rows.len(), 12, "24 records are 12 calls: {rows:?}");
    let details = hub.get(&format!("/admin/audit/{}", rows[0])).await;
    assert_eq!(details.status, StatusCode::OK);
    assert!(details.text.contains("Call history"));
    let records = hub.get("/admin/audit?view=records").await.text;
    assert_eq!(between(&records, "<a class=\"number\" href=\"/admin/audit/", "\"").len(), 24);
    // A row of the Now page knows the ID of its call only.
    let by_id = hub.get("/admin/audit/call/5000").await;
    assert_eq!((by_id.status, by_id.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/admin/audit/10240"));
    assert_eq!(hub.get("/admin/audit/call/x").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_filter_offers_the_known_values_and_keeps_the_one_of_a_link() {
    let hub = AdminFixture::signed_in().await;
    let page = hub.get("/admin/audit?client=research&outcome=Needs+approval&server=gone*").await.text;
    for option in [
        "<option value=\"research\" selected>research (",
        "<option value=\"stdio\">stdio</option>",
        "<option value=\"needs_approval\" selected>Needs approval</option>",
        "<option value=\"workspace\">workspace (",
        "<option value=\"gone*\" selected>gone*</option>",
    ] {
        assert!(page.contains(option), "{option}");
    }
    // The other view and older pages keep the filters.
    assert!(
        page.contains("client=research&#38;server=gone%2A&#38;outcome=Needs%20approval&#38;view=records")
    );
}

#[tokio::test]
async fn an_outcome_has_the_same_colour_on_every_page() {
    let hub = AdminFixture::signed_in().await;
    for path in ["/admin", "/admin/audit", "/admin/audit?view=records"] {
        let page = hub.get(path).await.text;
        for (outcome, tone) in [("OK", "good"), ("Denied", "bad"), ("Timeout", "bad")] {
            let badges = between(&page, "<span class=\"badge ", &format!("\">{outcome}</span>"));
            let tones: Vec<&str> = badges.into_iter().filter(|tone| !tone.contains('<')).collect();
            assert!(tones.iter().all(|found| *found == tone), "{path}: {outcome} is {tones:?}");
        }
    }
    assert!(hub.get("/admin").await.text.contains("<span class=\"badge bad\">Timeout</span>"));
}

#[tokio::test]
async fn times_are_elements_that_say_their_zone_without_script() {
    let hub = AdminFixture::signed_in().await;
    let page = hub.get("/admin/audit").await.text;
    let times = between(&page, "data-local=\"full\">", "</time>");
    assert_eq!(times.len(), 12);
    // `2026-11-16 09:00:00 CET`: a date, a time and the zone.
    assert!(times.iter().all(|time| time.split(' ').count() == 3), "{times:?}");
    let elements = between(&page, "<time datetime=\"", ">");
    assert!(elements.iter().all(|time| time.contains(" UTC\" data-local=\"full\"")), "{elements:?}");
}

#[tokio::test]
async fn charts_have_axes_and_say_what_each_period_counted() {
    let hub = AdminFixture::signed_in().await;
    for (path, periods, title) in [
        ("/admin/metrics", 60, "All calls"),
        ("/admin/metrics?range=day", 96, "All calls"),
        ("/admin/metrics?range=week", 84, "All calls"),
        ("/admin/metrics?range=week&client=laptop", 28, "Client laptop"),
        ("/admin/metrics?range=day&server=git", 24, "Server git"),
        ("/admin", 60, "Now"),
    ] {
        let page = hub.get(path).await.text;
        assert!(page.contains(&format!(">{title}</h")), "{path}");
        assert_eq!(between(&page, "data-chart=\"", "\"").len(), 3, "{path}");
        assert_eq!(between(&page, "class=\"hit\"", ">").len(), 3 * periods, "{path}");
        let tips = between(&page, "<title>", "</title>");
        assert!(tips.iter().any(|tip| tip.contains(" UTC: ") && tip.contains(" · p95 ")), "{path}");
        assert_eq!(between(&page, "<span data-top>", "</span>").len(), 3, "{path}");
    }
    let quiet = hub.get("/admin/metrics?client=nobody").await.text;
    assert!(quiet.contains("No calls in this range.") && quiet.contains("By client"));
}

#[tokio::test]
async fn what_is_left_to_set_up_is_listed_until_it_is_dismissed() {
    let hub = AdminFixture::fresh().await;
    let first = hub.get("/admin").await;
    let steps = between(&first.text, "<ol class=\"steps\">", "</ol>")[0];
    for text in [
        "href=\"/admin/clients#add\"",
        "href=\"/admin/servers#add\"",
        "href=\"/admin/policy#add\"",
        "store backup",
    ] {
        assert!(steps.contains(text), "{text}");
    }
    assert!(!AdminFixture::signed_in().await.get("/admin").await.text.contains("Finish the setup"));
    let dismissed = hub.post("/admin/setup", &format!("csrf={}", first.csrf())).await;
    assert_eq!((dismissed.status, dismissed.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/admin"));
    let cookie = dismissed.header(header::SET_COOKIE).split(';').next().unwrap();
    let again = hub.get_with_cookie("/admin", cookie).await;
    assert!(again.text.contains("No servers yet.") && !again.text.contains("Finish the setup"));
}

#[tokio::test]
async fn what_waits_comes_before_the_charts() {
    let hub = AdminFixture::signed_in().await;
    let page = hub.get("/admin").await.text;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("Pending approvals") < at("Calls per minute"));
}
