//! `time`: moments are seconds since 1970, or texts as RFC 3339 has them.

use crate::hub::Run;
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

/// The zones that the binary has with it: no file can be read here.
fn zone(name: &str) -> anyhow::Result<TimeZone> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let zone = TimeZoneDatabase::bundled().get(name);
    zone.map_err(|_| anyhow::anyhow!("time: `{name}` is no time zone; expected a name like Europe/Vienna"))
}

fn moment(value: Value<'_>) -> anyhow::Result<Timestamp> {
    if let Some(text) = value.unpack_str() {
        return text
            .parse()
            .map_err(|_| anyhow::anyhow!("time: `{text}` is no moment like 2026-07-28T12:00:00Z"));
    }
    let seconds = UnpackFloat::unpack_value(value).ok().flatten();
    let seconds = seconds
        .ok_or_else(|| anyhow::anyhow!("time: expected seconds or a text, not {}", value.get_type()))?;
    let nanoseconds = seconds.0 * 1e9;
    // Beyond what a double holds exactly the difference is below a microsecond.
    Timestamp::from_nanosecond(nanoseconds as i128)
        .map_err(|_| anyhow::anyhow!("time: {} s is out of range", seconds.0))
}

#[expect(clippy::disallowed_methods, reason = "a worker has no clock of its own to be given")]
fn now() -> anyhow::Result<Timestamp> {
    Ok(Timestamp::try_from(std::time::SystemTime::now())?)
}

/// As RFC 3339 has it, to the second.
fn written(moment: &Zoned) -> anyhow::Result<String> {
    let format =
        if moment.time_zone() == &TimeZone::UTC { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    Ok(strtime::format(format, moment)?)
}

#[starlark_module]
pub(crate) fn time(builder: &mut GlobalsBuilder) {
    /// Returns the time as a text like 2026-07-28T12:00:00Z.
    fn now(#[starlark(default = "UTC")] zone: &str) -> anyhow::Result<String> {
        written(&self::now()?.to_zoned(self::zone(zone)?))
    }

    /// Returns seconds since 1970, of now or of a text.
    fn unix(#[starlark(require = pos)] moment: Option<Value<'_>>) -> anyhow::Result<f64> {
        let moment = match moment {
            Some(moment) => self::moment(moment)?,
            None => self::now()?,
        };
        Ok(moment.as_nanosecond() as f64 / 1e9)
    }

    /// Writes a moment, as `strftime` does.
    fn format(
        #[starlark(require = pos)] moment: Value<'_>,
        #[starlark(default = "")] format: &str,
        #[starlark(default = "UTC")] zone: &str,
    ) -> anyhow::Result<String> {
        let moment = self::moment(moment)?.to_zoned(self::zone(zone)?);
        match format {
            "" => written(&moment),
            format => {
                strtime::format(format, &moment).map_err(|error| anyhow::anyhow!("time.format: {error}"))
            }
        }
    }

    /// Reads a moment as seconds since 1970. A text without a zone is of `zone`.
    fn parse(
        #[starlark(require = pos)] text: &str,
        #[starlark(default = "")] format: &str,
        #[starlark(default = "UTC")] zone: &str,
    ) -> anyhow::Result<f64> {
        let told = |error: jiff::Error| anyhow::anyhow!("time.parse: {error}");
        let zone = self::zone(zone)?;
        let moment = match format {
            "" => match text.parse::<Timestamp>() {
                Ok(moment) => moment,
                Err(_) => {
                    let civil: jiff::civil::DateTime = text.parse().map_err(told)?;
                    civil.to_zoned(zone).map_err(told)?.timestamp()
                }
            },
            format => {
                let parsed = strtime::parse(format, text).map_err(told)?;
                match parsed.to_timestamp() {
                    Ok(moment) => moment,
                    Err(_) => {
                        let time = parsed.to_time().unwrap_or_else(|_| jiff::civil::Time::midnight());
                        let civil = parsed.to_date().map_err(told)?.to_datetime(time);
                        civil.to_zoned(zone).map_err(told)?.timestamp()
                    }
                }
            }
        };
        Ok(moment.as_nanosecond() as f64 / 1e9)
    }

    /// Waits. More than the time that is left is an error at once.
    fn sleep(#[starlark(require = pos)] seconds: UnpackFloat) -> anyhow::Result<NoneType> {
        let left = Run::now()?.left();
        let Ok(wanted) = Duration::try_from_secs_f64(seconds.0.max(0.0)) else {
            return Err(anyhow::anyhow!("time.sleep: {} is no time to wait", seconds.0));
        };
        if wanted >= left {
            return Err(anyhow::anyhow!(
                "time.sleep: {} s is more than the {:.1} s that are left; `# @timeout:` asks for more",
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
