//! What the command line prints with `--json`. Programs read it, so its keys stay as they are.
//!
//! The types of the API and the page are in [`desk`](crate::desk).

mod admins;
mod approvals;
mod clients;
mod imports;
mod policy;
mod policy_test;
mod scripts;
mod secrets;
mod servers;

pub use admins::{AdminListing, SessionListing};
pub use approvals::ApprovalListing;
pub use clients::ClientListing;
pub use imports::import_listing;
pub use policy::PolicyListing;
pub use policy_test::policy_test_listing;
pub use scripts::{script_decision_listing, script_listing, script_review_listing};
pub use secrets::SecretListing;
pub use servers::server_listing;
