//! `time`: timestamps are seconds since 1970, or RFC 3339 strings.

use crate::run_context::RunContext;
use jiff::fmt::strtime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::UnpackValue;
use starlark::values::Value;
use starlark::values::float::UnpackFloat;
use starlark::values::none::NoneType;
use std::time::Duration;

/// Looks up a time zone in the bundled database: the sandbox allows no file access.
fn zone(name: &str) -> anyhow::Result<TimeZone> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let zone = TimeZoneDatabase::bundled().get(name);
    zone.map_err(|_| anyhow::anyhow!("time: `{name}` is not a time zone; expected a name like Europe/Vienna"))
}

fn moment(value: Value<'_>) -> anyhow::Result<Timestamp> {
    if let Some(text) = value.unpack_str() {
        return text
            .parse()
            .map_err(|_| anyhow::anyhow!("time: `{text}` is not a timestamp like 2026-07-28T12:00:00Z"));
    }
    let seconds = UnpackFloat::unpack_value(value).ok().flatten();
    let seconds = seconds
        .ok_or_else(|| anyhow::anyhow!("time: expected seconds or a string, not {}", value.get_type()))?;
    let nanoseconds = seconds.0 * 1e9;
    // Where a double is no longer exact, the error is below a microsecond.
    Timestamp::from_nanosecond(nanoseconds as i128)
        .map_err(|_| anyhow::anyhow!("time: {} s is out of range", seconds.0))
}

#[expect(clippy::disallowed_methods, reason = "a worker has no clock of its own to be given")]
fn now() -> anyhow::Result<Timestamp> {
    Ok(Timestamp::try_from(std::time::SystemTime::now())?)
}

/// Formats a timestamp as RFC 3339, to the second.
fn format_rfc3339(moment: &Zoned) -> anyhow::Result<String> {
    let format =
        if moment.time_zone() == &TimeZone::UTC { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    Ok(strtime::format(format, moment)?)
}

#[starlark_module]
pub(crate) fn time(builder: &mut GlobalsBuilder) {
    /// Returns the current time as a string like 2026-07-28T12:00:00Z.
    fn now(#[starlark(default = "UTC")] zone: &str) -> anyhow::Result<String> {
        format_rfc3339(&self::now()?.to_zoned(self::zone(zone)?))
    }

    /// Returns the seconds since 1970, of now or of a timestamp.
    fn unix(#[starlark(require = pos)] moment: Option<Value<'_>>) -> anyhow::Result<f64> {
        let moment = match moment {
            Some(moment) => self::moment(moment)?,
            None => self::now()?,
        };
        Ok(moment.as_nanosecond() as f64 / 1e9)
    }

    /// Formats a timestamp like `strftime`.
    fn format(
        #[starlark(require = pos)] moment: Value<'_>,
        #[starlark(default = "")] format: &str,
        #[starlark(default = "UTC")] zone: &str,
    ) -> anyhow::Result<String> {
        let moment = self::moment(moment)?.to_zoned(self::zone(zone)?);
        match format {
            "" => format_rfc3339(&moment),
            format => {
                strtime::format(format, &moment).map_err(|error| anyhow::anyhow!("time.format: {error}"))
            }
        }
    }

    /// Parses a timestamp to seconds since 1970. A text without a zone is in `zone`.
    fn parse(
        #[starlark(require = pos)] text: &str,
        #[starlark(default = "")] format: &str,
        #[starlark(default = "UTC")] zone: &str,
    ) -> anyhow::Result<f64> {
        let failed = |error: jiff::Error| anyhow::anyhow!("time.parse: {error}");
        let zone = self::zone(zone)?;
        let moment = match format {
            "" => match text.parse::<Timestamp>() {
                Ok(moment) => moment,
                Err(_) => {
                    let civil: jiff::civil::DateTime = text.parse().map_err(failed)?;
                    civil.to_zoned(zone).map_err(failed)?.timestamp()
                }
            },
            format => {
                let parsed = strtime::parse(format, text).map_err(failed)?;
                match parsed.to_timestamp() {
                    Ok(moment) => moment,
                    Err(_) => {
                        let time = parsed.to_time().unwrap_or_else(|_| jiff::civil::Time::midnight());
                        let civil = parsed.to_date().map_err(failed)?.to_datetime(time);
                        civil.to_zoned(zone).map_err(failed)?.timestamp()
                    }
                }
            }
        };
        Ok(moment.as_nanosecond() as f64 / 1e9)
    }

    /// Waits. Fails at once if it would exceed the remaining time.
    fn sleep(#[starlark(require = pos)] seconds: UnpackFloat) -> anyhow::Result<NoneType> {
        let left = RunContext::now()?.remaining_time();
        let Ok(wanted) = Duration::try_from_secs_f64(seconds.0.max(0.0)) else {
            return Err(anyhow::anyhow!("time.sleep: {} is not a valid duration", seconds.0));
        };
        if wanted >= left {
            return Err(anyhow::anyhow!(
                "time.sleep: {} s is more than the remaining {:.1} s; raise the limit with `# @timeout:`",
                seconds.0,
                left.as_secs_f64()
            ));
        }
        pause(wanted);
        Ok(NoneType)
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs in this process")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
