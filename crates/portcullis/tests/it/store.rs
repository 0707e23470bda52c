//! `portcullis store`: looking after the database.

use crate::support::home;
use portcullis_testkit::process::TestHome;
use serde_json::json;

fn database(home: &TestHome) -> std::path::PathBuf {
    home.path().join("workspace/secure/portcullis.db")
}

#[tokio::test]
async fn looking_after_a_database_makes_none() {
    let home = TestHome::bare(env!("CARGO_BIN_EXE_portcullis"));
    let copy = home.path().join("copy").display().to_string();
    for args in [&["store", "check"][..], &["store", "export"], &["store", "backup", &copy]] {
        let ran = home.run(args).await;
        assert!(ran.code == 1 && ran.stderr.contains("there is no database"), "{args:?}: {ran:?}");
    }
    home.run(&["doctor"]).await;
    assert!(!database(&home).exists());
}

#[tokio::test]
async fn a_backup_is_restored_while_the_hub_is_stopped() {
    let home = home();
    home.add_client("ada", &[]).await;
    let copy = home.path().join("copy").display().to_string();
    let backup = home.run(&["store", "backup", &copy]).await;
    assert!(backup.code == 0 && backup.stderr.contains("Not in it: `row.key`"), "{backup:?}");
    assert_eq!(home.run(&["clients", "revoke", "ada"]).await.code, 0);
    let mut hub = home.serve().await;
    let refused = home.run(&["store", "restore", &copy]).await;
    assert!(refused.code == 1 && refused.stderr.contains("the hub is running"), "{refused:?}");
    hub.process.stop().await;
    let restored = home.run(&["store", "restore", &copy, "--json"]).await;
    assert_eq!(restored.code, 0, "{restored:?}");
    let replaced = restored.json()["replaced"].as_str().unwrap().to_owned();
    assert!(std::path::Path::new(&replaced).exists(), "{replaced}");
    assert!(home.run(&["clients"]).await.stdout.contains("ada"));
    let sound = home.run(&["store", "check", "--json"]).await.json();
    assert_eq!(sound["problems"], json!([]));
}

#[tokio::test]
async fn doctor_names_a_damaged_database_wherever_it_is_needed() {
    let home = home();
    home.add_client("ada", &[]).await;
    std::fs::write(database(&home), vec![b'x'; 8_192]).unwrap();
    let told = home.run(&["doctor", "--json"]).await;
    let checks = told.json();
    for what in ["clients", "approvals", "secrets"] {
        let check = checks.as_array().unwrap().iter().find(|check| check["what"] == what).unwrap();
        assert_eq!(check["status"], "problem", "{what}: {checks}");
        assert!(
            check["problem"].to_string().contains("damaged")
                || check["detail"].to_string().contains("damaged"),
            "{check}"
        );
    }
}
