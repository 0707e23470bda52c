//! Names of changes of servers, in audit records.

pub(super) const PROBE: &str = "mcp.look";
pub(super) const TRUST: &str = "mcp.trust";
pub(super) const DISTRUST: &str = "mcp.distrust";
pub(super) const ADD: &str = "mcp.add";
pub(super) const REMOVE: &str = "mcp.remove";
pub(super) const ENABLE: &str = "mcp.enable";
pub(super) const DISABLE: &str = "mcp.disable";
pub(super) const RESTART: &str = "mcp.restart";
pub(super) const IMPORT: &str = "mcp.import";
pub(super) const LOG_IN: &str = "mcp.auth";
pub(super) const LOG_OUT: &str = "mcp.logout";
