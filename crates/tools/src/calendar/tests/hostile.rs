//! Calendars made for denial of service.

use super::super::event;
use super::super::rrule::RecurrenceRule;
use super::super::rrule_expansion::{ExpansionBudget, STEPS_MAX, StartRange, expand};
use super::super::series::{TimeWindow, instances};
use jiff::civil::date;
use jiff::tz::TimeZone;
use std::time::{Duration, Instant};

/// Generous for a debug build on a busy machine: an unbounded expansion takes years.
const PATIENCE: Duration = Duration::from_secs(60);

fn calendar(events: &str) -> String {
    format!("BEGIN:VCALENDAR\n{events}END:VCALENDAR\n")
}

fn event(lines: &str) -> String {
    format!("BEGIN:VEVENT\nSUMMARY:x\n{lines}END:VEVENT\n")
}

fn repeating(rule: &str) -> String {
    calendar(&event(&format!("UID:1\nDTSTART:19700101T000000Z\nRRULE:{rule}\n")))
}

/// Returns the number of instances in a year, and whether some were left out.
fn read(text: &str) -> (usize, bool) {
    let window = TimeWindow {
        from: "2026-01-01T00:00:00Z".parse().unwrap(),
        to: "2027-01-01T00:00:00Z".parse().unwrap(),
    };
    let contents = event::read(text, &TimeZone::UTC).unwrap();
    let found = instances(&contents.events, window, &TimeZone::UTC, &mut ExpansionBudget::new(STEPS_MAX));
    (found.instances.len(), found.cut || contents.cut)
}

#[test]
fn no_calendar_takes_more_than_its_share() {
    let many = |count: usize, each: fn(usize) -> String| calendar(&(0..count).map(each).collect::<String>());
    let exceptions: String = (0..100_000)
        .map(|n| format!("EXDATE:2026{:02}{:02}T{:02}0000Z\n", n % 12 + 1, n % 28 + 1, n % 24))
        .collect();
    let in_one_line = vec!["20260101T000000Z"; 100_000].join(",");
    let mut wrong = Vec::new();
    for (name, text, expected) in [
        ("never, by seconds", repeating("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"), Some((0, false))),
        ("never, by minutes, counted", repeating("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=31;COUNT=5"), None),
        ("never, by years", repeating("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=1000000000"), Some((0, false))),
        ("never, by weeks of the year", repeating("FREQ=YEARLY;BYWEEKNO=20;BYYEARDAY=1;BYDAY=MO"), Some((0, false))),
        ("every second", repeating("FREQ=SECONDLY"), None),
        ("every second, counted", repeating("FREQ=SECONDLY;COUNT=1000000000"), Some((0, false))),
        ("every second of every day", repeating(&format!("FREQ=DAILY;BYHOUR={};BYMINUTE={};BYSECOND={}", list(24), list(60), list(60))), None),
        ("until the end of time", repeating("FREQ=DAILY;UNTIL=99991231T235959Z"), Some((365, false))),
        ("a thousand million days", repeating("FREQ=DAILY;COUNT=1000000000"), Some((365, false))),
        ("a great interval", repeating("FREQ=SECONDLY;INTERVAL=100000000"), None),
        ("a hundred thousand events", many(100_000, |n| event(&format!("UID:{n}\nDTSTART:20260101T000000Z\n"))), Some((50_000, true))),
        ("many rules", many(20_000, |n| event(&format!("UID:{n}\nDTSTART:20200101T000000Z\nRRULE:FREQ=SECONDLY\n"))), None),
        ("many changes", many(20_000, |_| event("UID:1\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260101T000000Z\nDTSTART:20260101T000000Z\n")), Some((1, false))),
        ("many exceptions", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\nRRULE:FREQ=HOURLY\n{exceptions}"))), None),
        ("many exceptions in one line", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\nRRULE:FREQ=DAILY\nEXDATE:{in_one_line}\n"))), Some((364, false))),
        ("many more times", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\nRDATE:{in_one_line}\n"))), Some((1, false))),
        ("a long line", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\nDESCRIPTION:{}\n", "x".repeat(5_000_000)))), Some((1, false))),
        ("a line of many folds", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\nDESCRIPTION:{}\n", "x\n ".repeat(500_000)))), Some((1, false))),
        ("parameters", calendar(&event(&format!("UID:1\nDTSTART{}:20260101T000000Z\n", ";A=b".repeat(100_000)))), Some((1, false))),
        ("nested parts", calendar(&event(&format!("UID:1\nDTSTART:20260101T000000Z\n{}", "BEGIN:VALARM\n".repeat(100_000)))), Some((1, false))),
        ("zones", calendar(&format!("{}{}", "BEGIN:VTIMEZONE\nTZID:x\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0000\nTZOFFSETTO:+0100\nRRULE:FREQ=SECONDLY\nEND:STANDARD\nEND:VTIMEZONE\n".repeat(5_000), event("UID:1\nDTSTART;TZID=x:20260601T000000\n"))), Some((1, false))),
        ("names of zones", many(20_000, |n| event(&format!("UID:{n}\nDTSTART;TZID=/a/b/c/Zone{n}:20260601T000000\n"))), Some((20_000, false))),
        ("an endless event", calendar(&event("UID:1\nDTSTART:00010101T000000Z\nDTEND:99991231T000000Z\n")), Some((0, false))),
        ("nothing but beginnings", "BEGIN:VCALENDAR\n".to_owned() + &"BEGIN:VEVENT\n".repeat(150_000), Some((0, false))),
    ] {
        let start = Instant::now();
        let found = read(&text);
        let took = start.elapsed();
        eprintln!("{name}: {} ms, {found:?}", took.as_millis());
        assert!(took < PATIENCE, "{name}: {took:?}");
        assert!(found.0 <= 50_000 + 10_000, "{name}: {found:?}");
        if expected.is_some_and(|expected| expected != found) {
            wrong.push(format!("{name}: {found:?}, expected {expected:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

fn list(count: usize) -> String {
    (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

/// Control: checks every second.
fn weak_steps(from: i64, to: i64) -> u64 {
    (from..to).map(std::hint::black_box).filter(|second| second % 86_400 == 86_401).count() as u64
        + (to - from).unsigned_abs()
}

#[test]
fn a_rule_that_never_comes_true_costs_what_it_is_given() {
    let rule = RecurrenceRule::parse("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=31;COUNT=5").unwrap();
    let start = date(1970, 1, 1).at(0, 0, 0, 0);
    let wanted = StartRange { from: start, to: date(9000, 1, 1).at(0, 0, 0, 0) };
    let mut budget = ExpansionBudget::new(STEPS_MAX);
    let found = expand(&rule, start, wanted, &mut budget);
    assert!(found.starts.is_empty() && found.cut);
    // Checking each second of a single year exceeds the budget of a whole calendar.
    assert!(weak_steps(0, 365 * 86_400) > STEPS_MAX);
    // An exhausted budget leaves nothing for the next rule.
    let mut spent = ExpansionBudget::new(0);
    let found = expand(&RecurrenceRule::parse("FREQ=DAILY").unwrap(), start, wanted, &mut spent);
    assert!(found.starts.is_empty() && found.cut);
}

/// Deterministic pseudo-random numbers.
fn numbers(mut seed: u64) -> impl Iterator<Item = usize> {
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 16).unwrap_or_default()
    })
}

#[test]
fn no_calendar_is_too_broken_to_be_read() {
    let zone = "BEGIN:VTIMEZONE\nTZID:x\nBEGIN:STANDARD\nDTSTART:19701025T030000\nTZOFFSETFROM:+0200\nTZOFFSETTO:-0100\n\
                RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\nRDATE:19991231T235959\nEND:STANDARD\nEND:VTIMEZONE\n";
    let text = calendar(&format!(
        "X-WR-TIMEZONE:Asia/Tokyo\n{zone}{}{}",
        event(
            "UID:1\nDTSTART;TZID=x:20251201T013000\nDTEND;VALUE=DATE:20251202\nRRULE:FREQ=MONTHLY;BYSETPOS=-1;BYDAY=MO,-2TU;WKST=SU;UNTIL=20301231\nEXDATE;TZID=\"W. Europe Standard Time\":20260105T013000,20260112\nRDATE;VALUE=PERIOD:20260101T000000Z/PT1H,20260102T000000Z/20260103T000000Z\n"
        ),
        event(
            "UID:1\nSEQUENCE:2\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260105T013000Z\nDTSTART:20260106\nDURATION:-P1DT2H\nSTATUS:TENTATIVE\n"
        ),
    ));
    let pieces = [
        ":",
        ";",
        "=",
        ",",
        "-",
        "9",
        "0",
        "Z",
        "T",
        "P",
        "\"",
        "\\",
        "\n",
        "\n ",
        "ä",
        "\0",
        "BEGIN:",
        "END:",
        "99999999",
        "RRULE:FREQ=SECONDLY\n",
    ];
    let mut random = numbers(7);
    let mut next = |below: usize| random.next().unwrap_or_default() % below.max(1);
    for _ in 0..2_000 {
        let mut broken: Vec<char> = text.chars().collect();
        for _ in 0..=next(6) {
            let at = next(broken.len());
            let gone = next(4).min(broken.len() - at);
            broken.splice(at..at + gone, pieces[next(pieces.len())].chars());
        }
        let broken: String = broken.into_iter().collect();
        let window = TimeWindow {
            from: "2026-01-01T00:00:00Z".parse().unwrap(),
            to: "2026-02-01T00:00:00Z".parse().unwrap(),
        };
        if let Some(contents) = event::read(&broken, &TimeZone::UTC) {
            // Parsed events expand in order.
            let found =
                instances(&contents.events, window, &TimeZone::UTC, &mut ExpansionBudget::new(20_000));
            assert!(found.instances.is_sorted_by_key(|instance| instance.at), "{broken}");
        }
    }
}
