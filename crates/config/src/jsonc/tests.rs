use super::*;
use proptest::prelude::*;
use serde_json::json;

fn check(text: &str) -> String {
    put(text, &["servers", "portcullis"], &json!({ "a": [1] })).unwrap_or_else(|e| format!("refused: {e}"))
}

#[test]
fn comments_order_and_form_stay() {
    insta::assert_snapshot!(check("// mine\n{\n\t\"z\": 1.0, // one\n\t\"big\": 12345678901234567890123,\n\t/* all */ \"servers\": {\n\t\t\"other\": { \"url\": \"http://x//y\" } // keep\n\t\t// and this\n\t},\n\t\"a\": [1, 2,],\n}\n"), @r#"
    // mine
    {
    	"z": 1.0, // one
    	"big": 12345678901234567890123,
    	/* all */ "servers": {
    		"other": { "url": "http://x//y" }, // keep
    		// and this
    		"portcullis": {
    			"a": [
    				1
    			]
    		}
    	},
    	"a": [1, 2,],
    }
    "#);
}

#[test]
fn what_was_put_in_is_taken_out_and_nothing_else() {
    for (text, rest) in [
        (r#"{"s": {"a": 1}}"#, r#"{"s": {}}"#),
        (r#"{"s": {"a": {"x": "}"}, "b": 2}}"#, r#"{"s": {"b": 2}}"#),
        ("{\"s\": {\n  \"b\": 2,\n  \"a\": 1\n}}", "{\"s\": {\n  \"b\": 2\n}}"),
        ("{\"s\": {\n  \"b\": 2, // b\n  \"a\": 1,\n}}", "{\"s\": {\n  \"b\": 2,\n}}"),
    ] {
        assert_eq!(take(text, &["s", "a"]).as_deref(), Ok(rest));
    }
    for text in ["{}", r#"{"s": {}}"#, r#"{"s": 3}"#, "nonsense"] {
        assert!(take(text, &["s", "a"]).is_err(), "{text}");
    }
}

#[test]
fn every_form_of_an_object_takes_an_entry() {
    let texts = [
        "",
        "{}",
        "{ }\n",
        "{ /* nothing yet */ }",
        "{\n  // nothing yet\n}\n",
        "{\"servers\": {}}",
        "{\"servers\":{\"x\":1},\"y\":2}",
        "{\n    \"servers\": {\n    }\n}",
        "{\n  \"servers\": {\n    \"x\": 1,\n  },\n}\n",
        "{\n  \"servers\": {\"portcullis\": {\"old\": true}, \"x\": 1}\n}\n",
        "{\n  \"servers\": {\n    \"portcullis\": 1 // old\n  }\n}\n",
        "{\r\n  \"x\": 1\r\n}\r\n",
        "\u{feff}{\r\n  \"servers\": {\r\n    \"portcullis\": {}\r\n  }\r\n}",
    ];
    insta::assert_snapshot!(texts.map(check).join("\n--\n"), @r#"
    {
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }

    --
    {
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }
    --
    {
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }

    --
    { /* nothing yet */
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }
    --
    {
      // nothing yet
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }

    --
    {"servers": {
      "portcullis": {
        "a": [
          1
        ]
      }
    }}
    --
    {"servers":{"x":1,
      "portcullis": {
        "a": [
          1
        ]
      }
    },"y":2}
    --
    {
        "servers": {
            "portcullis": {
                "a": [
                    1
                ]
            }
        }
    }
    --
    {
      "servers": {
        "x": 1,
        "portcullis": {
          "a": [
            1
          ]
        },
      },
    }

    --
    {
      "servers": {"portcullis": {
        "a": [
          1
        ]
      }, "x": 1}
    }

    --
    {
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        } // old
      }
    }

    --
    {
      "x": 1,
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }

    --
    ﻿{
      "servers": {
        "portcullis": {
          "a": [
            1
          ]
        }
      }
    }
    "#);
}

#[test]
fn line_ends_stay_as_they_are() {
    for text in ["{\r\n  \"x\": 1\r\n}\r\n", "{\r\n  \"servers\": {\r\n    \"portcullis\": {}\r\n  }\r\n}"] {
        let after = check(text);
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let texts = [
        "[]",
        "{",
        "{\"servers\": []}",
        "{\"servers\": {\"portcullis\": 1, \"portcullis\": 2}}",
        "{\"a\" 1}",
        "{} {}",
        "{\"a\": 'x'}",
        "{a: 1}",
        "{\"a\": \"\n\"}",
        "{\"a\": 1,,}",
        "/* open",
        "{\"x\": \"open",
        "nonsense",
    ];
    insta::assert_snapshot!(texts.map(check).join("\n"), @r#"
    refused: it is not an object
    refused: EOF while parsing an object at line 1 column 1
    refused: `servers` is not an object
    refused: key `portcullis` is given twice at line 1 column 42
    refused: expected `:` at line 1 column 6
    refused: trailing characters at line 1 column 4
    refused: expected value at line 1 column 7
    refused: key must be a string at line 1 column 2
    refused: control character (\u0000-\u001F) found while parsing a string at line 2 column 0
    refused: trailing comma at line 1 column 10
    refused: it is not an object
    refused: EOF while parsing a string at line 1 column 11
    refused: expected ident at line 1 column 2
    "#);
    assert!(check(&format!("{{\"a\": {}{}}}", "[".repeat(5000), "]".repeat(5000))).starts_with("refused"));
}

#[test]
fn comments_end_where_they_end_in_the_applications() {
    for text in ["{ /*/ \"a\": 1, */ \"b\": 2 }", "{ // a\r\"b\": 2 }", "{ /**/ \"b\": 2 } /* open"] {
        assert_eq!(parse(text), Ok(json!({ "b": 2 })), "{text}");
    }
}

fn almost_json() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"servers\"",
        "\"portcullis\"",
        "1",
        "true",
        "// c\n",
        "/* c */",
        " ",
        "\n",
        "\"é\\\"",
        "\\",
        "/",
        "*/",
        "\u{feff}",
        "\"servers\": {",
        "},",
    ]);
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn an_edit_changes_the_entry_only_and_never_panics(text in prop_oneof![almost_json(), any::<String>()]) {
        if let Ok(after) = put(&text, &["servers", "portcullis"], &json!({ "a": [1] })) {
            let mut expected = parse(&text).unwrap();
            insert(&mut expected, &["servers", "portcullis"], &json!({ "a": [1] })).unwrap();
            prop_assert_eq!(parse(&after).unwrap(), expected);
            // Doing it twice is doing it once.
            prop_assert_eq!(put(&after, &["servers", "portcullis"], &json!({ "a": [1] })).unwrap(), after);
        }
    }
}
