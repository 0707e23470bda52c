//! Check of `web_fetch`. Makes no request: connectivity is not checked.

use super::WebSection;
use portcullis_core::BoxFuture;
use portcullis_egress::PlainHttp;
use portcullis_family::{CheckState, DoctorParts, HealthCheck};

pub(super) fn checks<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async { vec![check(parts).of("web")] })
}

fn check(parts: &DoctorParts<'_>) -> CheckState {
    let Some(web) = parts.section::<WebSection>() else {
        return CheckState::Good("off; `[web]` in the configuration enables web_fetch on".to_owned());
    };
    let http = if web.plain_http == PlainHttp::Allowed { ", http:// too" } else { "" };
    match parts.egress_exceptions {
        [] => CheckState::Good(format!("on, public addresses only{http}")),
        exceptions => {
            let places: Vec<String> = exceptions.iter().map(ToString::to_string).collect();
            CheckState::Good(format!("on, public addresses{http} and {}", places.join(", ")))
        }
    }
}
