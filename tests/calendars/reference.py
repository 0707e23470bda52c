"""Makes calendars from a seed, and says what takes place in them by a reference implementation.

    reference.py COUNT SEED OUT

Writes one JSON object per line: the file, the reader's time zone, the time that is asked for, and what takes place then
by `icalendar` with `recurring-ical-events`.
"""

import json
import random
import sys
import warnings
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import icalendar
import recurring_ical_events

warnings.simplefilter("ignore")
UTC = timezone.utc
ZONES = ["Europe/Vienna", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "America/Sao_Paulo", "Australia/Lord_Howe",
         "Pacific/Auckland", "Africa/Cairo", "Europe/London", "America/Los_Angeles", "Asia/Tokyo", "America/St_Johns"]
WINDOWS = ["W. Europe Standard Time", "Pacific Standard Time", "AUS Eastern Standard Time", "India Standard Time",
           "Eastern Standard Time", "GMT Standard Time"]
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
OWN = "Our Own Time"
DEFINED = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:19701025T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:19700329T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
END:VTIMEZONE
"""
# Days on which clocks change somewhere, leap days, and the ends of years.
HOT = [date(2024, 2, 29), date(2024, 3, 10), date(2024, 3, 31), date(2024, 4, 7), date(2024, 10, 6), date(2024, 10, 27),
       date(2024, 11, 3), date(2024, 12, 31), date(2025, 2, 28), date(2025, 3, 30), date(2025, 10, 26), date(2026, 1, 1),
       date(2028, 2, 29), date(2027, 12, 31)]


def stamp(at):
    return at.strftime("%Y%m%dT%H%M%S")


def day(at):
    return at.strftime("%Y%m%d")


class Maker:
    def __init__(self, random_):
        self.r = random_
        self.uid = 0

    def chance(self, share):
        return self.r.random() < share

    def rule(self, all_day):
        """Returns a rule as people and programs write them."""
        r = self.r
        frequency = r.choice(["YEARLY", "MONTHLY", "MONTHLY", "WEEKLY", "WEEKLY", "DAILY"] + ([] if all_day else ["HOURLY", "MINUTELY"]))
        parts = [f"FREQ={frequency}"]
        if self.chance(0.4):
            parts.append(f"INTERVAL={r.randint(30, 600) if frequency == 'MINUTELY' else r.randint(2, 5)}")
        elif frequency == "MINUTELY":
            parts.append("INTERVAL=90")
        signed = lambda most: r.choice([1, -1]) * r.randint(1, most)
        some = lambda values, most: ",".join(str(v) for v in sorted(set(r.choices(values, k=r.randint(1, most))), key=str))
        if frequency == "YEARLY":
            kind = r.randint(0, 6)
            if kind == 1:
                parts.append(f"BYMONTH={some(range(1, 13), 3)}")
            elif kind == 2:
                parts += [f"BYMONTH={r.randint(1, 12)}", f"BYDAY={signed(4)}{r.choice(DAYS)}"]
            elif kind == 3:
                parts.append(f"BYYEARDAY={some([1, 60, 100, 200, 365, 366, -1, -366, -100], 3)}")
            elif kind == 4:
                parts += [f"BYWEEKNO={some([1, 20, 52, 53, -1], 2)}", f"BYDAY={some(DAYS, 3)}"]
            elif kind == 5:
                parts.append(f"BYDAY={signed(20)}{r.choice(DAYS)}")
            elif kind == 6:
                parts += [f"BYMONTH={some(range(1, 13), 3)}", f"BYMONTHDAY={some([1, 15, 29, 30, 31, -1, -2], 3)}"]
        elif frequency == "MONTHLY":
            kind = r.randint(0, 5)
            if kind == 1:
                parts.append(f"BYMONTHDAY={some([1, 13, 28, 29, 30, 31, -1, -5], 3)}")
            elif kind == 2:
                parts.append(f"BYDAY={signed(5)}{r.choice(DAYS)}")
            elif kind == 3:
                parts += [f"BYDAY={some(DAYS, 5)}", f"BYSETPOS={r.choice(['1', '-1', '2', '1,-1'])}"]
            elif kind == 4:
                parts += ["BYMONTHDAY=13", "BYDAY=FR"]
            elif kind == 5:
                parts += [f"BYMONTH={some(range(1, 13), 4)}", f"BYDAY={some(DAYS, 2)}"]
        elif frequency == "WEEKLY":
            if self.chance(0.7):
                parts.append(f"BYDAY={some(DAYS, 4)}")
            if self.chance(0.4):
                parts.append(f"WKST={r.choice(DAYS)}")
            if self.chance(0.15):
                parts.append(f"BYMONTH={some(range(1, 13), 6)}")
        elif frequency == "DAILY":
            if self.chance(0.3):
                parts.append(f"BYDAY={some(DAYS, 5)}")
            if self.chance(0.2):
                parts.append(f"BYMONTH={some(range(1, 13), 4)}")
            if self.chance(0.2) and not all_day:
                parts += [f"BYHOUR={some(range(0, 24), 3)}", f"BYMINUTE={some([0, 15, 30, 45], 2)}"]
        elif frequency == "HOURLY":
            if self.chance(0.5):
                parts.append(f"BYHOUR={some(range(0, 24), 6)}")
            if self.chance(0.3):
                parts.append(f"BYMINUTE={some([0, 20, 40], 2)}")
            if self.chance(0.3):
                parts.append(f"BYDAY={some(DAYS, 3)}")
        elif self.chance(0.5):
            parts.append(f"BYHOUR={some(range(0, 24), 4)}")
        return frequency, parts

    def event(self, near, zone, text, has_own_zone):
        """Adds one event, with its exceptions and changes. `zone` is "", "Z" or the name of one."""
        r = self.r
        self.uid += 1
        uid = f"event-{self.uid}@example.com"
        all_day = self.chance(0.25)
        back = r.choice([0, 1, 3, 10, 40, 200, 800, 4000])
        first = near - timedelta(days=r.randint(0, back) if back else 0)
        if self.chance(0.1):
            first = date(r.choice([2000, 2016, 2020, 2024]), 2, 29)
        # Hours in which clocks change are as likely as all others together.
        hours = [0, 1, 2, 3] if self.chance(0.5) else range(4, 24)
        start = datetime.combine(first, datetime.min.time()).replace(hour=r.choice(hours), minute=r.choice([0, 15, 30, 59]))
        minutes = r.choice([0, 15, 60, 90, 8 * 60, 30 * 60, 3 * 24 * 60])
        length = timedelta(days=r.choice([1, 1, 1, 2, 7, 14])) if all_day else timedelta(minutes=minutes)

        def at(name, value):
            if all_day:
                return f"{name};VALUE=DATE:{day(value)}"
            if zone == "Z":
                return f"{name}:{stamp(value)}Z"
            return f"{name};TZID={zone}:{stamp(value)}" if zone else f"{name}:{stamp(value)}"

        lines = ["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20240101T000000Z", f"SUMMARY:Event {self.uid}\\, with a comma"]
        lines += [at("DTSTART", start)]
        kind = r.randint(0, 3)
        if all_day and kind == 0:
            length = timedelta(days=1)
        elif kind == 1 and not all_day:
            hours_, rest = divmod(minutes, 60)
            lines.append(f"DURATION:PT{hours_}H{rest}M")
        elif kind == 2 and all_day:
            lines.append(f"DURATION:P{length.days}D")
        else:
            lines.append(at("DTEND", start + length))
        if self.chance(0.2):
            lines.append(f"STATUS:{r.choice(['TENTATIVE', 'CONFIRMED', 'CANCELLED'])}")
        if self.chance(0.3):
            lines += ["BEGIN:VALARM", "ACTION:DISPLAY", "SUMMARY:Not the event", "TRIGGER:-PT15M", "DTSTART:19990101T000000", "END:VALARM"]
        candidates, within_a_day = [], False
        if self.chance(0.85):
            frequency, parts = self.rule(all_day)
            kind = r.randint(0, 3)
            if kind == 0:
                parts.append(f"COUNT={r.choice([1, 3, 10, 50, 400])}")
            elif kind == 1:
                end = start + timedelta(days=r.randint(0, back + 60), hours=r.randint(0, 5))
                parts.append("UNTIL=" + (day(end) if all_day else stamp(end) + ("Z" if zone else "")))
            lines.append("RRULE:" + ";".join(parts))
            # Times that are likely ones of the rule.
            step = {"DAILY": 1, "WEEKLY": 7}.get(frequency, 0)
            base = datetime.combine(near, start.time())
            candidates = [base + timedelta(days=n) for n in range(-10, 40)] if step else [base, start]
            # The reference takes a time in UTC for one on the wall where both show the same, which happens within a day.
            within_a_day = frequency in ("HOURLY", "MINUTELY") or any(part.startswith("BYHOUR") for part in parts)
            if within_a_day:
                candidates = []
        if candidates and self.chance(0.5):
            for _ in range(r.randint(1, 4)):
                lines.append(at("EXDATE", r.choice(candidates)))
        if self.chance(0.2):
            more = datetime.combine(near, start.time()) + timedelta(days=r.randint(0, 20))
            if not all_day and zone == "Z" and not within_a_day and self.chance(0.4):
                lines.append(f"RDATE;VALUE=PERIOD:{stamp(more)}Z/PT45M")
            else:
                lines.append(at("RDATE", more))
        lines.append("END:VEVENT")
        if candidates and self.chance(0.5):
            taken = set()
            for number in range(r.randint(1, 3)):
                replaced = r.choice(candidates)
                if replaced in taken:
                    continue
                taken.add(replaced)
                # The reference loses the range of a change where the calendar as a whole has a zone.
                future = self.chance(0.25) and not has_own_zone
                moved = replaced + timedelta(days=r.choice([0, 0, 1, -1, 5]), hours=0 if all_day else r.choice([0, 1, -2]))
                name = at("RECURRENCE-ID", replaced)
                if future:
                    name = name.replace("RECURRENCE-ID", "RECURRENCE-ID;RANGE=THISANDFUTURE", 1)
                lines += ["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20240101T000000Z", name, f"SEQUENCE:{number + 1}"]
                lines += [at("DTSTART", moved), at("DTEND", moved + (length or timedelta(minutes=5)))]
                lines += [f"SUMMARY:Change {number} of {self.uid}"]
                if self.chance(0.2):
                    lines.append("STATUS:CANCELLED")
                lines.append("END:VEVENT")
        text.extend(lines)

    def calendar(self, number):
        r = self.r
        text = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example//test//EN"]
        near = r.choice(HOT) if self.chance(0.7) else date(2024, 1, 1) + timedelta(days=r.randint(0, 1500))
        style, has_own_zone = number % 6, False
        zone = r.choice(ZONES)
        if style == 1:
            zone = r.choice(WINDOWS)
        elif style == 2:
            zone = OWN
            text += DEFINED.format(name=zone).strip().split("\n")
        elif style == 3:
            zone = r.choice(["", "Z"])
            if self.chance(0.3):
                text.append(f"X-WR-TIMEZONE:{r.choice(ZONES)}")
                zone, has_own_zone = "Z", True
        for _ in range(r.randint(1, 4)):
            self.event(near, zone, text, has_own_zone)
        text.append("END:VCALENDAR")
        home = r.choice(ZONES + ["UTC"])
        start = datetime.combine(near, datetime.min.time(), UTC) - timedelta(days=r.choice([0, 1, 3]), hours=r.randint(0, 23))
        return fold(text, r), home, start, start + timedelta(days=r.choice([1, 7, 31, 120]))


def fold(lines, r):
    """Folds some lines, as files from everywhere do."""
    out = []
    for line in lines:
        while len(line) > 40 and r.random() < 0.3:
            at = r.randint(10, 39)
            out.append(line[:at])
            line = " " + line[at:]
        out.append(line)
    return r.choice(["\r\n", "\n"]).join(out) + "\r\n"


def unfolded(text):
    return text.replace("\r\n ", "").replace("\n ", "")


def moment(value, home):
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=ZoneInfo(home)).astimezone(UTC)
    if value.tzinfo is None:
        value = value.replace(tzinfo=ZoneInfo(home))
    return value.astimezone(UTC)


def takes_place(text, home, start, end):
    # A zone that the calendar defines itself is this one. The reference would follow the definition, but reads times that
    # clocks leave out another way there than RFC 5545 and than it does itself for a zone that it knows.
    calendar = icalendar.Calendar.from_ical(unfolded(text).replace(f"TZID={OWN}", "TZID=Europe/Berlin"))
    found = []
    wide = timedelta(days=3)
    for event in recurring_ical_events.of(calendar).between(start - wide, end + wide):
        if str(event.get("STATUS", "")) == "CANCELLED":
            continue
        begins, ends = event["DTSTART"].dt, event["DTEND"].dt
        first, last = moment(begins, home), moment(ends, home)
        if getattr(ends, "fold", 0):
            raise ValueError("the second of an hour that comes twice; the reference tells it as the first, but not always")
        within = first < end and (start < last or (first >= last and first >= start))
        if not within:
            continue
        if isinstance(begins, datetime):
            times = ["time", first.strftime("%Y-%m-%dT%H:%M:%SZ"), last.strftime("%Y-%m-%dT%H:%M:%SZ")]
        else:
            times = ["day", begins.isoformat(), ends.isoformat()]
        found.append(times + [str(event.get("SUMMARY"))])
    # A time that clocks leave out is told as the hour after it, where an hourly event may be already: RFC 5545 has it
    # once, as everything that begins at the same moment in one series; the reference has both.
    once = {}
    for event in sorted(found):
        once.setdefault((event[1], event[3]), event)
    return sorted(once.values())


def shaped():
    """Calendars as well-known programs write them."""
    from pathlib import Path
    for path in sorted(Path(__file__).with_name("shaped").glob("*.ics")):
        text = path.read_text()
        for year, month in [(2024, 3), (2024, 10), (2025, 2), (2026, 1)]:
            start = datetime(year, month, 20, 7, tzinfo=UTC)
            yield path.stem, text, "Europe/Vienna", start, start + timedelta(days=31)


def main():
    count, seed, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    maker = Maker(random.Random(seed))
    total, made, refused = 0, 0, 0
    with open(out, "w") as file:
        def write(name, text, home, start, end):
            events = takes_place(text, home, start, end)
            file.write(json.dumps({"name": name, "text": text, "home": home, "from": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                   "to": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "events": events}) + "\n")
            return len(events)

        while made < count:
            calendar = maker.calendar(made)
            try:
                total += write(f"generated-{made}", *calendar)
                made += 1
            except ValueError:
                # A rule that can never come true is an error there.
                refused += 1
        for calendar in shaped():
            total += write(*calendar)
            made += 1
    print(f"{made} calendars from seed {seed}, {total} events by the reference, which refused {refused} more")


main()
