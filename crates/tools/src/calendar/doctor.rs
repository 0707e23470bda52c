//! Check of each calendar. Makes no request: connectivity is not checked.

use super::{CalendarLocation, CalendarSource, CalendarsSection};
use portcullis_core::BoxFuture;
use portcullis_egress::SecretUrl;
use portcullis_family::{CheckState, DoctorParts, HealthCheck};
use portcullis_store::secrets::{SecretError, SecretStore};

const WHAT: &str = "calendars";

pub(super) fn checks<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async {
        let calendars = parts.section::<CalendarsSection>().map(Vec::as_slice).unwrap_or_default();
        if calendars.is_empty() {
            let off = "off; `[[calendars]]` with a name and a url or file enables calendar_read";
            return vec![CheckState::Good(off.to_owned()).of(WHAT)];
        }
        calendars.iter().map(|calendar| check(calendar, parts.secrets).of(WHAT)).collect()
    })
}

fn check(calendar: &CalendarSource, secrets: Result<&SecretStore, &str>) -> CheckState {
    let name = &calendar.name;
    match &calendar.place {
        CalendarLocation::File(path) => match std::fs::File::open(path) {
            Ok(_) => CheckState::Good(format!("{name}: {}", path.display())),
            Err(error) => CheckState::bad(
                format!("{name}: {}: {error}", path.display()),
                "create the file, or fix `file` of the calendar",
            ),
        },
        CalendarLocation::Address { address: SecretUrl::Given(_), .. } => CheckState::Warning(format!(
            "{name}: its URL is in plain text; store it with `portcullis secrets set NAME` and refer to it as `secret:NAME`"
        )),
        CalendarLocation::Address { address: SecretUrl::Stored(handle), .. } => {
            let secrets = match secrets {
                Ok(secrets) => secrets,
                Err(error) => return CheckState::unreadable(error),
            };
            match secrets.resolve_address(handle.name()) {
                Ok(_) => CheckState::Good(format!("{name}: URL in {handle}")),
                Err(SecretError::Locked(_)) => CheckState::Warning(format!(
                    "{name}: {handle} cannot be checked; the secret store is locked"
                )),
                Err(error) => CheckState::bad(
                    format!("{name}: {error}"),
                    format!("set the URL with `portcullis secrets set {}`", handle.name()),
                ),
            }
        }
    }
}
