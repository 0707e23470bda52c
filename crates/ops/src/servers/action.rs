//! Names of changes of servers, in audit records.

pub const PROBE: &str = "mcp.look";
pub const TRUST: &str = "mcp.trust";
pub const ADD: &str = "mcp.add";
pub const REMOVE: &str = "mcp.remove";
pub const IMPORT: &str = "mcp.import";
pub const LOG_IN: &str = "mcp.auth";
pub const LOG_OUT: &str = "mcp.logout";
