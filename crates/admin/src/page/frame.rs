//! The frame of every page: navigation, session, flash message, feedback on a form.

use super::form::FormFields;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_ops::Problem;
use std::sync::Arc;

/// The sections, in navigation order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavSection {
    Now,
    Metrics,
    Approvals,
    Servers,
    Tools,
    Scripts,
    Clients,
    Secrets,
    Policy,
    Audit,
    Settings,
}

impl NavSection {
    pub(crate) const ALL: [NavSection; 11] = [
        NavSection::Now,
        NavSection::Approvals,
        NavSection::Servers,
        NavSection::Tools,
        NavSection::Scripts,
        NavSection::Clients,
        NavSection::Secrets,
        NavSection::Policy,
        NavSection::Metrics,
        NavSection::Audit,
        NavSection::Settings,
    ];

    fn title(self) -> &'static str {
        match self {
            NavSection::Now => "Now",
            NavSection::Metrics => "Metrics",
            NavSection::Approvals => "Approvals",
            NavSection::Servers => "Servers",
            NavSection::Tools => "Tools",
            NavSection::Scripts => "Scripts",
            NavSection::Clients => "Clients",
            NavSection::Secrets => "Secrets",
            NavSection::Policy => "Policy",
            NavSection::Audit => "Audit",
            NavSection::Settings => "Settings",
        }
    }

    fn href(self) -> &'static str {
        match self {
            NavSection::Now => "/admin",
            NavSection::Metrics => "/admin/metrics",
            NavSection::Approvals => "/admin/approvals",
            NavSection::Servers => "/admin/servers",
            NavSection::Tools => "/admin/tools",
            NavSection::Scripts => "/admin/scripts",
            NavSection::Clients => "/admin/clients",
            NavSection::Secrets => "/admin/secrets",
            NavSection::Policy => "/admin/policy",
            NavSection::Audit => "/admin/audit",
            NavSection::Settings => "/admin/settings",
        }
    }

    /// The keyboard shortcut, after `g`.
    fn key(self) -> &'static str {
        match self {
            NavSection::Now => "n",
            NavSection::Metrics => "m",
            NavSection::Approvals => "a",
            NavSection::Servers => "s",
            NavSection::Tools => "t",
            NavSection::Scripts => "r",
            NavSection::Clients => "c",
            NavSection::Secrets => "e",
            NavSection::Policy => "p",
            NavSection::Audit => "u",
            NavSection::Settings => "i",
        }
    }

    /// The SVG path of a 16 by 16 icon.
    fn icon(self) -> &'static str {
        match self {
            NavSection::Now => "M1.5 8h3l2-5 3 10 2-5h3",
            NavSection::Metrics => "M1.5 14h13M3 11.5v-3M6.5 11.5v-8M10 11.5v-5M13.5 11.5V5",
            NavSection::Approvals => {
                "M8 1.5l5.5 2V8c0 3.5-2.5 5.5-5.5 6.5C5 13.5 2.5 11.5 2.5 8V3.5zM5.5 8l2 2 3.5-3.5"
            }
            NavSection::Servers => "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1",
            NavSection::Tools => {
                "M13.5 4.5l-2.5 2.5-2-2 2.5-2.5a3.5 3.5 0 0 0-4.7 4.3L2 11.5 4.5 14l4.7-4.8a3.5 3.5 0 0 0 4.3-4.7z"
            }
            NavSection::Scripts => "M5 4L1.5 8 5 12M11 4l3.5 4L11 12M9 2.5l-2 11",
            NavSection::Clients => {
                "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.5-3 2.5-4.5 5.5-4.5s5 1.5 5.5 4.5"
            }
            NavSection::Secrets => "M5.5 13.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM7.7 8.3L13.5 2.5M11 5l2 2",
            NavSection::Policy => "M5.5 4H14M5.5 8H14M5.5 12H14M2 4h1M2 8h1M2 12h1",
            NavSection::Audit => {
                "M3 2h8.5A1.5 1.5 0 0 1 13 3.5V14H4.5A1.5 1.5 0 0 1 3 12.5zM5.5 5h5M5.5 8h5M5.5 11h3"
            }
            NavSection::Settings => {
                "M2 4.5h6M12 4.5h2M10 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM2 11.5h2M8 11.5h6M6 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z"
            }
        }
    }
}

/// A navigation link.
pub(crate) struct NavEntry {
    pub(crate) title: &'static str,
    pub(crate) href: &'static str,
    pub(crate) key: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) current: bool,
    /// How many items need attention.
    pub(crate) count: Option<usize>,
}

/// The colour theme. Stored in a cookie, so the first paint is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// Follows the operating system.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn named(name: &str) -> Theme {
        match name {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::System,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    pub(crate) fn next(&self) -> &'static str {
        match self {
            Theme::System => "light",
            Theme::Light => "dark",
            Theme::Dark => "system",
        }
    }

    pub(crate) fn forced(&self) -> Option<&'static str> {
        (*self != Theme::System).then(|| self.name())
    }
}

/// A submitted form that is shown again: its values, and its error if there was one.
pub(crate) struct FormFeedback {
    pub(crate) form: String,
    pub(crate) problem: Option<Problem>,
    pub(crate) given: FormFields,
}

impl FormFeedback {
    pub(crate) fn wrong(form: impl Into<String>, problem: Problem, given: FormFields) -> FormFeedback {
        FormFeedback { form: form.into(), problem: Some(problem), given }
    }

    /// A form shown again with its values, without an error.
    pub(crate) fn kept(form: impl Into<String>, given: FormFields) -> FormFeedback {
        FormFeedback { form: form.into(), problem: None, given }
    }
}

pub(crate) struct PageFrame {
    pub(crate) place: NavSection,
    pub(crate) admin: String,
    pub(crate) csrf: String,
    pub(crate) theme: Theme,
    /// The current path, for redirects back.
    pub(crate) path: String,
    pub(crate) version: String,
    pub(crate) now: Timestamp,
    /// The configured time zone.
    pub(crate) zone: Arc<TimeZone>,
    /// The flash message.
    pub(crate) said: Option<String>,
    pub(crate) approvals_waiting: usize,
    /// `None` if the hub has no scripts.
    pub(crate) scripts_waiting: Option<usize>,
    pub(crate) servers_waiting: usize,
    pub(crate) slip: Option<FormFeedback>,
}

impl PageFrame {
    pub(crate) fn entries(&self) -> Vec<NavEntry> {
        let exists = |place: &NavSection| *place != NavSection::Scripts || self.scripts_waiting.is_some();
        let entry = |place: NavSection| NavEntry {
            title: place.title(),
            href: place.href(),
            key: place.key(),
            icon: place.icon(),
            current: place == self.place,
            count: match place {
                NavSection::Approvals => Some(self.approvals_waiting),
                NavSection::Scripts => self.scripts_waiting,
                NavSection::Servers => Some(self.servers_waiting),
                _ => None,
            },
        };
        NavSection::ALL.into_iter().filter(exists).map(entry).collect()
    }

    /// Returns the error of a form.
    pub(crate) fn problem(&self, form: &str) -> Option<&Problem> {
        self.slip.as_ref().filter(|slip| slip.form == form)?.problem.as_ref()
    }

    pub(crate) fn is_slip(&self, form: &str) -> bool {
        self.slip.as_ref().is_some_and(|slip| slip.form == form)
    }

    /// Returns the submitted value of a field.
    pub(crate) fn given(&self, form: &str, name: &str) -> &str {
        self.slip.as_ref().filter(|slip| slip.form == form).map_or("", |slip| slip.given.get(name))
    }

    /// Returns whether a checkbox was ticked.
    pub(crate) fn gave(&self, form: &str, name: &str, value: &str) -> bool {
        self.slip.as_ref().is_some_and(|slip| slip.form == form && slip.given.has(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_key_of_its_own() {
        for (at, place) in NavSection::ALL.iter().enumerate() {
            assert!(
                NavSection::ALL.iter().skip(at + 1).all(|other| other.key() != place.key()),
                "{}",
                place.title()
            );
        }
    }
}
