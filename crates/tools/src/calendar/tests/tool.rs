//! The tool as a client sees it.

use crate::calendar::{CalendarConfig, CalendarLocation, CalendarSource, family};
use crate::testing::{ToolsFixture, shown};
use crate::web::{WebFixtureSite, answer};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use portcullis_core::{Clock, Output, Secret, Target};
use portcullis_egress::{PlainHttp, SecretUrl};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Monday, 2026-03-23, 07:00 in Vienna: the Sunday after it has 23 hours.
const NOW: u64 = 1_774_245_600;

struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

fn hand() -> Arc<Hand> {
    Arc::new(Hand(AtomicU64::new(NOW)))
}

fn feed(name: &str, address: &str) -> CalendarSource {
    let address = SecretUrl::Given(Secret::new(address.to_owned()));
    CalendarSource {
        name: name.to_owned(),
        place: CalendarLocation::Address { address, plain_http: PlainHttp::Refused },
    }
}

fn file(name: &str, path: &Path) -> CalendarSource {
    CalendarSource { name: name.to_owned(), place: CalendarLocation::File(path.to_owned()) }
}

fn hub(site: &WebFixtureSite, clock: Arc<Hand>, calendars: Vec<CalendarSource>) -> ToolsFixture {
    let zone = Arc::new(|| TimeZone::get("Europe/Vienna").unwrap());
    let config = CalendarConfig { egress: site.config().egress, clock, zone, calendars };
    ToolsFixture::and(family(config))
}

async fn read(hub: &ToolsFixture, arguments: Value) -> Value {
    match hub.call(Target::Tool("calendar_read".to_owned()), arguments).await {
        Ok(Output::Tool(output)) => output.structured.unwrap(),
        other => panic!("{}", shown(other)),
    }
}

/// Returns each event in one line.
fn lines(agenda: &Value) -> String {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let line = |event: &Value| {
        ["start", "end", "title", "location", "status", "calendar"].map(|key| text(event, key)).join(" | ")
    };
    agenda["events"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

const WORK: &str = "BEGIN:VCALENDAR\nVERSION:2.0\n\
    BEGIN:VEVENT\nUID:1\nSUMMARY:Stand-up\nLOCATION:Room 1\\, left\nDTSTART;TZID=Europe/Vienna:20260302T093000\nDURATION:PT15M\n\
    RRULE:FREQ=WEEKLY;BYDAY=MO,SU\nEXDATE;TZID=Europe/Vienna:20260330T093000\n\
    BEGIN:VALARM\nACTION:DISPLAY\nSUMMARY:Alarm\nTRIGGER:-PT5M\nEND:VALARM\nEND:VEVENT\n\
    BEGIN:VEVENT\nUID:2\nSUMMARY:Fair\nDTSTART;VALUE=DATE:20260322\nDTEND;VALUE=DATE:20260325\nSTATUS:TENTATIVE\nEND:VEVENT\n\
    BEGIN:VEVENT\nUID:3\nSUMMARY:Cancelled\nDTSTART:20260324T100000Z\nSTATUS:CANCELLED\nEND:VEVENT\n\
    BEGIN:VEVENT\nUID:4\nSUMMARY:Over\nDTSTART:20260323T040000Z\nDTEND:20260323T060000Z\nEND:VEVENT\n\
    BEGIN:VEVENT\nUID:5\nSUMMARY:Under way\nDTSTART:20260323T040000Z\nDTEND:20260323T060001Z\nEND:VEVENT\nEND:VCALENDAR\n";
const HOME: &str = "BEGIN:VCALENDAR\nVERSION:2.0\n\
    BEGIN:VEVENT\nUID:1\nSUMMARY:Call overseas\nDTSTART;TZID=Pacific Standard Time:20260323T090000\nDTEND;TZID=Pacific Standard Time:20260323T093000\nEND:VEVENT\n\
    BEGIN:VEVENT\nUID:2\nSUMMARY:Pills\u{202e}\nDTSTART:20260329T080000\nEND:VEVENT\nEND:VCALENDAR\n";

#[tokio::test]
async fn calendars_are_merged_in_order_in_the_zone_of_the_reader() {
    let site = WebFixtureSite::open(|path| match path {
        "/work" => answer(200, &[("content-type", "text/calendar")], WORK),
        _ => answer(200, &[], HOME),
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("home.ics"), HOME).unwrap();
    let hub = hub(
        &site,
        hand(),
        vec![feed("Work", &site.url("/work")), file("Home", &folder.path().join("home.ics"))],
    );
    let agenda = read(&hub, json!({})).await;
    insta::assert_snapshot!(lines(&agenda), @"
    2026-03-22 | 2026-03-24 | Fair | - | tentative | Work
    2026-03-23T05:00:00+01:00 | 2026-03-23T07:00:01+01:00 | Under way | - | confirmed | Work
    2026-03-23T09:30:00+01:00 | 2026-03-23T09:45:00+01:00 | Stand-up | Room 1, left | confirmed | Work
    2026-03-23T17:00:00+01:00 | 2026-03-23T17:30:00+01:00 | Call overseas | - | confirmed | Home
    2026-03-29T08:00:00+02:00 | 2026-03-29T08:00:00+02:00 | Pills | - | confirmed | Home
    2026-03-29T09:30:00+02:00 | 2026-03-29T09:45:00+02:00 | Stand-up | Room 1, left | confirmed | Work
    ");
    assert_eq!(agenda["from"], "2026-03-23T07:00:00+01:00");
    assert_eq!(agenda["until"], "2026-03-30T07:00:00+02:00", "seven days, of which one has 23 hours");
    assert_eq!(
        (&agenda["timezone"], &agenda["problems"], &agenda["left_out"]),
        (&json!("Europe/Vienna"), &json!([]), &json!(0))
    );
    let one = read(&hub, json!({ "calendar": " home ", "days": 1 })).await;
    assert_eq!(one["events"].as_array().unwrap().len(), 1);
    let said = hub.check(&[
        r#"calendar_read {"calendar": "Holidays"}"#,
        r#"calendar_read {"days": 0}"#,
        r#"calendar_read {"days": 367}"#,
    ]);
    insta::assert_snapshot!(said.await, @r#"
    > calendar_read {"calendar": "Holidays"}
    not_found: calendar `Holidays` not found
    hint: leave `calendar` out, or choose one of `Work`, `Home`
    > calendar_read {"days": 0}
    invalid_args: invalid arguments: `days` is 0, expected 1 to 366
    > calendar_read {"days": 367}
    invalid_args: invalid arguments: `days` is 367, expected 1 to 366
    "#);
}

#[tokio::test]
async fn a_dead_feed_is_told_beside_the_others_and_never_where_it_is() {
    let site = WebFixtureSite::open(|path| match path {
        "/secret-link/good" => answer(200, &[], HOME),
        "/secret-link/gone" => answer(404, &[], ""),
        "/secret-link/busy" => answer(429, &[("retry-after", "120")], ""),
        "/secret-link/page" => answer(200, &[("content-type", "text/html")], "<title>Log in"),
        _ => answer(302, &[("location", "http://10.0.0.1/secret-link")], ""),
    });
    let mut calendars: Vec<CalendarSource> = ["good", "gone", "page", "sent", "busy"]
        .iter()
        .map(|name| feed(name, &site.url(&format!("/secret-link/{name}"))))
        .collect();
    calendars.push(feed("unknown", "https://secret-link.invalid/"));
    calendars.push(file("file", Path::new("/nonexistent/secret-link.ics")));
    let hub = hub(&site, hand(), calendars);
    let agenda = read(&hub, json!({})).await;
    assert_eq!(agenda["events"].as_array().unwrap().len(), 2);
    let all = agenda.to_string();
    for part in ["secret-link", "127.0.0.1", "10.0.0.1", "nonexistent"] {
        assert!(!all.contains(part), "{part}: {all}");
    }
    let problem = |problem: &Value| {
        format!("{}: {}", problem["calendar"].as_str().unwrap(), problem["problem"].as_str().unwrap())
    };
    let problems: Vec<String> = agenda["problems"].as_array().unwrap().iter().map(problem).collect();
    insta::assert_snapshot!(problems.join("\n"), @"
    gone: calendar `gone` answered 404 Not Found
    page: the URL does not return a calendar
    sent: calendar `sent` redirects to a URL that is refused
    busy: calendar `busy` answered 429 Too Many Requests
    unknown: calendar `unknown` has no public address
    file: the file of calendar `file` cannot be read
    ");
    assert!(agenda["problems"].as_array().unwrap().iter().all(|problem| !problem["advice"][0].is_null()));
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again_and_stands_in_for_a_while() {
    let state = Arc::new(Mutex::new(("v1", 200)));
    let answering = state.clone();
    let sent = Arc::new(AtomicU64::new(0));
    let sending = sent.clone();
    let site = WebFixtureSite::open_heads(move |request| {
        let (version, status) = *answering.lock();
        if status != 200 {
            return answer(status, &[], "");
        }
        if request.contains(&format!("if-none-match: \"{version}\"")) {
            return answer(304, &[], "");
        }
        sending.fetch_add(1, Ordering::Relaxed);
        answer(200, &[("etag", &format!("\"{version}\""))], HOME.replace("Pills", version))
    });
    let clock = hand();
    let hub = hub(&site, clock.clone(), vec![feed("Home", &site.url("/x"))]);
    let title = |agenda: &Value| agenda["events"][1]["title"].as_str().unwrap_or_default().to_owned();
    let asked = || (site.asked().len(), sent.load(Ordering::Relaxed));
    assert_eq!((title(&read(&hub, json!({})).await), asked()), ("v1".to_owned(), (1, 1)));
    // Fresh for a minute, then revalidated.
    clock.0.fetch_add(59, Ordering::Relaxed);
    assert_eq!((title(&read(&hub, json!({})).await), asked()), ("v1".to_owned(), (1, 1)));
    clock.0.fetch_add(1, Ordering::Relaxed);
    assert_eq!((title(&read(&hub, json!({})).await), asked()), ("v1".to_owned(), (2, 1)));
    clock.0.fetch_add(60, Ordering::Relaxed);
    state.lock().0 = "v2";
    assert_eq!((title(&read(&hub, json!({})).await), asked()), ("v2".to_owned(), (3, 2)));
    // A failing calendar is reported, with its stale copy.
    state.lock().1 = 500;
    clock.0.fetch_add(60, Ordering::Relaxed);
    let agenda = read(&hub, json!({})).await;
    assert_eq!(title(&agenda), "v2");
    assert_eq!(agenda["problems"][0]["problem"], "calendar `Home` answered 500 Internal Server Error");
    assert_eq!(agenda["problems"][0]["shown_as_of"], "2026-03-23T07:02:00+01:00");
    // But only for a day.
    clock.0.fetch_add(24 * 60 * 60, Ordering::Relaxed);
    assert_eq!(read(&hub, json!({})).await["events"], json!([]));
}

#[tokio::test]
async fn an_answer_has_a_bound_and_says_what_it_leaves_out() {
    let events: String = (0..800)
        .map(|n| format!("BEGIN:VEVENT\nUID:{n}\nSUMMARY:{n}\nDTSTART:20260324T100000Z\nEND:VEVENT\n"))
        .collect();
    let long = format!(
        "BEGIN:VEVENT\nUID:x\nSUMMARY:{}\nDTSTART:20260323T100000Z\nRRULE:FREQ=NEVER\nEND:VEVENT\n",
        "t".repeat(3_000)
    );
    let text = format!("BEGIN:VCALENDAR\n{events}{long}END:VCALENDAR\n");
    let site = WebFixtureSite::open(move |_| answer(200, &[], &text));
    let hub = hub(&site, hand(), vec![feed("Home", &site.url("/x"))]);
    let agenda = read(&hub, json!({})).await;
    assert_eq!((agenda["events"].as_array().unwrap().len(), &agenda["left_out"]), (500, &json!(301)));
    assert_eq!(agenda["events"][0]["title"], "(too long to be shown)");
    assert_eq!(agenda["problems"][0]["problem"], "1 of its events cannot be read in full");
}
