//! A sibling folder whose name starts with the root's name (CVE-2025-53110).

use crate::fixture::Fixture;

#[test]
fn a_neighbour_is_not_inside() {
    let fixture = Fixture::new();
    for neighbour in ["ai-data-evil", "ai-data2", "ai-data.bak", "secure"] {
        fixture.check_refused(&format!("../{neighbour}/CANARY"));
        fixture.check_refused(&format!("notes/../../{neighbour}/CANARY"));
        fixture.check_refused(&format!("/workspace/../{neighbour}/CANARY"));
        fixture.check_refused(&format!("{}/{neighbour}/CANARY", fixture.ws().display()));
    }
    for path in ["/workspace-evil/CANARY", "/workspace2/CANARY", "/workspace.bak", "/workspacenotes/todo.md"]
    {
        fixture.check_refused(path);
    }
    assert_eq!(fixture.read("/workspace/notes/todo.md").unwrap(), b"milk");
}
