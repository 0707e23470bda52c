//! What is around every page: where one is, who one is, what just happened.

use super::form::Form;
use crate::problem::Problem;
use jiff::Timestamp;

/// The pages, in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Now,
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

impl Place {
    pub(crate) const ALL: [Place; 10] = [
        Place::Now,
        Place::Approvals,
        Place::Servers,
        Place::Tools,
        Place::Scripts,
        Place::Clients,
        Place::Secrets,
        Place::Policy,
        Place::Audit,
        Place::Settings,
    ];

    fn title(self) -> &'static str {
        match self {
            Place::Now => "Now",
            Place::Approvals => "Approvals",
            Place::Servers => "Servers",
            Place::Tools => "Tools",
            Place::Scripts => "Scripts",
            Place::Clients => "Clients",
            Place::Secrets => "Secrets",
            Place::Policy => "Policy",
            Place::Audit => "Audit",
            Place::Settings => "Settings",
        }
    }

    fn href(self) -> &'static str {
        match self {
            Place::Now => "/admin",
            Place::Approvals => "/admin/approvals",
            Place::Servers => "/admin/servers",
            Place::Tools => "/admin/tools",
            Place::Scripts => "/admin/scripts",
            Place::Clients => "/admin/clients",
            Place::Secrets => "/admin/secrets",
            Place::Policy => "/admin/policy",
            Place::Audit => "/admin/audit",
            Place::Settings => "/admin/settings",
        }
    }

    /// The key that leads there, after `g`.
    fn key(self) -> &'static str {
        match self {
            Place::Now => "n",
            Place::Approvals => "a",
            Place::Servers => "s",
            Place::Tools => "t",
            Place::Scripts => "r",
            Place::Clients => "c",
            Place::Secrets => "e",
            Place::Policy => "p",
            Place::Audit => "u",
            Place::Settings => "i",
        }
    }

    /// The path of a picture of 16 by 16.
    fn icon(self) -> &'static str {
        match self {
            Place::Now => "M1.5 8h3l2-5 3 10 2-5h3",
            Place::Approvals => {
                "M8 1.5l5.5 2V8c0 3.5-2.5 5.5-5.5 6.5C5 13.5 2.5 11.5 2.5 8V3.5zM5.5 8l2 2 3.5-3.5"
            }
            Place::Servers => "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1",
            Place::Tools => {
                "M13.5 4.5l-2.5 2.5-2-2 2.5-2.5a3.5 3.5 0 0 0-4.7 4.3L2 11.5 4.5 14l4.7-4.8a3.5 3.5 0 0 0 4.3-4.7z"
            }
            Place::Scripts => "M5 4L1.5 8 5 12M11 4l3.5 4L11 12M9 2.5l-2 11",
            Place::Clients => "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.5-3 2.5-4.5 5.5-4.5s5 1.5 5.5 4.5",
            Place::Secrets => "M5.5 13.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM7.7 8.3L13.5 2.5M11 5l2 2",
            Place::Policy => "M5.5 4H14M5.5 8H14M5.5 12H14M2 4h1M2 8h1M2 12h1",
            Place::Audit => {
                "M3 2h8.5A1.5 1.5 0 0 1 13 3.5V14H4.5A1.5 1.5 0 0 1 3 12.5zM5.5 5h5M5.5 8h5M5.5 11h3"
            }
            Place::Settings => {
                "M2 4.5h6M12 4.5h2M10 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM2 11.5h2M8 11.5h6M6 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z"
            }
        }
    }
}

/// A line of the list of pages.
pub(crate) struct Entry {
    pub(crate) title: &'static str,
    pub(crate) href: &'static str,
    pub(crate) key: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) current: bool,
    /// How much waits there for a person.
    pub(crate) count: Option<usize>,
}

/// Which colours somebody wants. Kept in a cookie, so that a page is right from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// Those of the system.
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

/// What was put into a form that is shown again, and what was wrong with it, if something was.
pub(crate) struct Slip {
    pub(crate) form: String,
    pub(crate) problem: Option<Problem>,
    pub(crate) given: Form,
}

impl Slip {
    pub(crate) fn wrong(form: impl Into<String>, problem: Problem, given: Form) -> Slip {
        Slip { form: form.into(), problem: Some(problem), given }
    }

    /// A form that is shown with what was put in, although all was well.
    pub(crate) fn kept(form: impl Into<String>, given: Form) -> Slip {
        Slip { form: form.into(), problem: None, given }
    }
}

pub(crate) struct Frame {
    pub(crate) place: Place,
    pub(crate) admin: String,
    pub(crate) csrf: String,
    pub(crate) theme: Theme,
    /// Where one is, for what leads back.
    pub(crate) path: String,
    pub(crate) version: String,
    pub(crate) now: Timestamp,
    /// What just happened.
    pub(crate) said: Option<String>,
    pub(crate) approvals_waiting: usize,
    /// Nothing where there are no scripts.
    pub(crate) scripts_waiting: Option<usize>,
    pub(crate) servers_waiting: usize,
    pub(crate) slip: Option<Slip>,
}

impl Frame {
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let exists = |place: &Place| *place != Place::Scripts || self.scripts_waiting.is_some();
        let entry = |place: Place| Entry {
            title: place.title(),
            href: place.href(),
            key: place.key(),
            icon: place.icon(),
            current: place == self.place,
            count: match place {
                Place::Approvals => Some(self.approvals_waiting),
                Place::Scripts => self.scripts_waiting,
                Place::Servers => Some(self.servers_waiting),
                _ => None,
            },
        };
        Place::ALL.into_iter().filter(exists).map(entry).collect()
    }

    /// Returns what was wrong with a form.
    pub(crate) fn problem(&self, form: &str) -> Option<&Problem> {
        self.slip.as_ref().filter(|slip| slip.form == form)?.problem.as_ref()
    }

    pub(crate) fn is_slip(&self, form: &str) -> bool {
        self.slip.as_ref().is_some_and(|slip| slip.form == form)
    }

    /// Returns what was put into a field of a form that is shown again.
    pub(crate) fn given(&self, form: &str, name: &str) -> &str {
        self.slip.as_ref().filter(|slip| slip.form == form).map_or("", |slip| slip.given.get(name))
    }

    /// Returns whether a box of a form that is shown again was ticked.
    pub(crate) fn gave(&self, form: &str, name: &str, value: &str) -> bool {
        self.slip.as_ref().is_some_and(|slip| slip.form == form && slip.given.has(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_key_of_its_own() {
        for (at, place) in Place::ALL.iter().enumerate() {
            assert!(
                Place::ALL.iter().skip(at + 1).all(|other| other.key() != place.key()),
                "{}",
                place.title()
            );
        }
    }
}
