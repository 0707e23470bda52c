//! What a tool has to do with data: labels, and rules that speak of them.

use crate::changing_server::{Shop, done, tool};
use crate::support::home;
use serde_json::{Value, json};

const LABELS: &str =
    "labels = { \"see*\" = [\"private\"], \"pay\" = [], \"see_all\" = [\"private\", \"outward\"] }";
const RULE: &str = "[[policy]]\nlabels = [\"outward\"]\ndecision = \"deny\"";

#[tokio::test]
async fn a_rule_can_speak_of_what_a_tool_has_to_do_with_data() {
    let tools = ["pay", "see_one", "see_all", "other"].map(|name| tool(name, "Does something"));
    // Without the rule all of them can be called.
    for ruled in [true, false] {
        let (home, shop) = (home(), Shop::new(&json!({ "tools": tools })));
        let rule = if ruled { RULE } else { "" };
        shop.configure(&home, &format!("{LABELS}\nrename = {{ see_one = \"look\" }}\n{rule}"));
        done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow"]).await;
        let listed = home.run(&["tools", "list", "--json"]).await.json();
        let labels = |name: &str| {
            let found = listed.as_array().unwrap().iter().find(|tool| tool["name"] == name);
            found.map(|tool| tool["labels"].clone())
        };
        assert_eq!(labels("shop_pay"), Some(json!([])));
        assert_eq!(labels("shop_look"), Some(json!(["private"])), "by the name that the server gives it");
        assert_eq!(labels("workspace_read"), Some(json!(["private"])));
        assert_eq!(labels("workspace_write"), Some(json!([])));
        // The longest glob that fits counts; where none does, the worst is assumed.
        let outward = [
            ("shop_see_all", json!(["private", "outward"])),
            ("shop_other", json!(["untrusted", "outward"])),
        ];
        for (name, expected) in outward {
            assert_eq!(labels(name), (!ruled).then(|| expected.clone()), "{name}");
            let called = home.run(&["tools", "call", name, "{}"]).await;
            assert_eq!(called.code == 0, !ruled, "{called:?}");
            let test = home.run(&["policy", "test", "local", name, "--json"]).await;
            let told = test.json();
            assert_eq!(
                (test.code, &told["tool"]["labels"]),
                (if ruled { 4 } else { 0 }, &expected),
                "{told}"
            );
        }
        assert_eq!(done(&home, &["tools", "call", "shop_pay", "{}"]).await, "called pay\n");
        let told = home.run(&["policy", "test", "local", "shop_look", "--json"]).await.json();
        let why = if ruled { json!("`labels` is outward") } else { Value::Null };
        assert_eq!((&told["decision"], &told["rules"][0]["why"]), (&json!("allow"), &why), "{told}");
        if ruled {
            assert!(done(&home, &["policy", "list"]).await.contains("outward"));
            let said = home.run(&["policy", "test", "local", "shop_other"]).await.stdout;
            assert!(said.contains("destroy, outside, untrusted, outward; its schema is unknown"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_label_that_does_not_exist_is_told() {
    let (home, shop) = (home(), Shop::new(&json!({})));
    shop.configure(&home, "labels = { \"*\" = [\"secret\"] }\n[[policy]]\nlabels = []\ndecision = \"deny\"");
    let ran = home.run(&["mcp", "list"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("private") && ran.stderr.contains("policy[0].labels"), "{ran:?}");
}
