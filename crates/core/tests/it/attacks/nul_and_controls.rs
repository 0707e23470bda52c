//! Names with NUL, line breaks, terminal escapes or bidirectional overrides.

use crate::fixture::Fixture;
use portcullis_core::root::RootedPath;

#[test]
fn such_a_name_is_refused_before_the_kernel_sees_it() {
    let fixture = Fixture::new();
    let names = || fixture.list(".").unwrap();
    let before = names();
    for path in [
        "notes/todo.md\0.png",
        "\0",
        "notes/\0/../../secure/CANARY",
        "a\nb",
        "a\rb",
        "\u{1b}[2Jnotes",
        "a\u{7f}",
        "a\u{85}b",
        "\u{202e}dm.odot",
        "notes\u{200b}/todo.md",
        "\u{feff}notes/todo.md",
        "notes\u{e0041}",
        "a\u{2028}b",
    ] {
        assert!(RootedPath::parse(path).is_err(), "{path:?}");
        fixture.check_refused(path);
    }
    assert_eq!(names(), before);
}

#[test]
fn what_others_put_there_is_shown_harmlessly() {
    let fixture = Fixture::new();
    std::fs::write(fixture.inside().join("notes/\u{1b}]0;x\u{7}\u{202e}.md"), "x").unwrap();
    assert_eq!(fixture.list("notes").unwrap(), ["\\u{1b}]0;x\\u{7}\\u{202e}.md", "todo.md"]);
    let walked = fixture.root.walk(100, 64).unwrap();
    assert_eq!(walked.files.len(), 1, "it could not be requested, so it is not listed");
}
