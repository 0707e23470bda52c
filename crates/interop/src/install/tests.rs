use super::*;
use portcullis_config::Environment;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

const TOKEN: &str = "pcl_0123456789012345678901234567890123456789012";

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> SystemTime {
        // 2026-01-01T00:00:00Z
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        client: "laptop".into(),
        binary: "/usr/local/bin/portcullis".into(),
        home: "/home/me/hub".into(),
        url: "http://127.0.0.1:3000/mcp".into(),
        token: Some(Secret::new(TOKEN.into())),
    }
}

/// A user's home folder.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        User { home: tempfile::tempdir().unwrap() }
    }

    fn env(&self) -> impl Fn(&str) -> Option<OsString> {
        let home = self.home.path().as_os_str().to_owned();
        move |name| (name == "HOME").then(|| home.clone())
    }

    fn places(&self) -> ClientFolders {
        ClientFolders::from_env(Platform::Linux, &self.env()).unwrap()
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn plan(&self, client: ClientApp, transport: Transport) -> Result<InstallPlan, InstallError> {
        client.plan(transport, &endpoint(), &self.places())
    }

    /// Shows a text without the folder's own name, which differs from run to run.
    fn shown(&self, text: impl fmt::Display) -> String {
        let home = self.home.path().canonicalize().unwrap();
        text.to_string().replace(&home.display().to_string(), "HOME")
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn snippets() {
    let all: String = ClientApp::ALL
        .into_iter()
        .flat_map(|client| [(client, Transport::Stdio), (client, Transport::Http)])
        .map(|(client, transport)| {
            format!("{client} {transport:?}\n{}", client.snippet(transport, &endpoint()))
        })
        .collect();
    insta::assert_snapshot!(all, @r#"
    claude-desktop Stdio
    {
      "mcpServers": {
        "portcullis": {
          "command": "/usr/local/bin/portcullis",
          "args": [
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ]
        }
      }
    }
    claude-desktop Http
    {
      "mcpServers": {
        "portcullis": {
          "command": "/usr/local/bin/portcullis",
          "args": [
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ]
        }
      }
    }
    claude-code Stdio
    {
      "mcpServers": {
        "portcullis": {
          "type": "stdio",
          "command": "/usr/local/bin/portcullis",
          "args": [
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ]
        }
      }
    }
    claude-code Http
    {
      "mcpServers": {
        "portcullis": {
          "type": "http",
          "url": "http://127.0.0.1:3000/mcp",
          "headers": {
            "Authorization": "Bearer pcl_0123456789012345678901234567890123456789012"
          }
        }
      }
    }
    cursor Stdio
    {
      "mcpServers": {
        "portcullis": {
          "type": "stdio",
          "command": "/usr/local/bin/portcullis",
          "args": [
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ]
        }
      }
    }
    cursor Http
    {
      "mcpServers": {
        "portcullis": {
          "url": "http://127.0.0.1:3000/mcp",
          "headers": {
            "Authorization": "Bearer pcl_0123456789012345678901234567890123456789012"
          }
        }
      }
    }
    vscode Stdio
    {
      "servers": {
        "portcullis": {
          "type": "stdio",
          "command": "/usr/local/bin/portcullis",
          "args": [
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ]
        }
      }
    }
    vscode Http
    {
      "servers": {
        "portcullis": {
          "type": "http",
          "url": "http://127.0.0.1:3000/mcp",
          "headers": {
            "Authorization": "Bearer pcl_0123456789012345678901234567890123456789012"
          }
        }
      }
    }
    opencode Stdio
    {
      "mcp": {
        "portcullis": {
          "type": "local",
          "command": [
            "/usr/local/bin/portcullis",
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ],
          "enabled": true
        }
      }
    }
    opencode Http
    {
      "mcp": {
        "portcullis": {
          "type": "remote",
          "url": "http://127.0.0.1:3000/mcp",
          "headers": {
            "Authorization": "Bearer pcl_0123456789012345678901234567890123456789012"
          },
          "enabled": true
        }
      }
    }
    "#);
    let without_token = Endpoint { token: None, ..endpoint() };
    assert!(ClientApp::Cursor.snippet(Transport::Http, &without_token).contains("Bearer YOUR_TOKEN"));
}

#[test]
fn each_client_has_its_file_on_each_system() {
    let env: Environment<'_> = &|name| match name {
        "HOME" | "USERPROFILE" => Some("/u".into()),
        "APPDATA" => Some("/u/AppData/Roaming".into()),
        _ => None,
    };
    let xdg: Environment<'_> = &|name| match name {
        "XDG_CONFIG_HOME" => Some("/xdg".into()),
        "CLAUDE_CONFIG_DIR" => Some("/claude".into()),
        other => env(other),
    };
    let mut shown = String::new();
    for (label, platform, env) in [
        ("linux", Platform::Linux, env),
        ("linux with XDG", Platform::Linux, xdg),
        ("macos", Platform::MacOs, env),
        ("windows", Platform::Windows, env),
    ] {
        let places = ClientFolders::from_env(platform, env).unwrap();
        for client in ClientApp::ALL {
            shown.push_str(&format!("{label}: {}\n", client.path(&places).display()));
        }
    }
    insta::assert_snapshot!(shown, @"
    linux: /u/.config/Claude/claude_desktop_config.json
    linux: /u/.claude.json
    linux: /u/.cursor/mcp.json
    linux: /u/.config/Code/User/mcp.json
    linux: /u/.config/opencode/opencode.json
    linux with XDG: /xdg/Claude/claude_desktop_config.json
    linux with XDG: /claude/.claude.json
    linux with XDG: /u/.cursor/mcp.json
    linux with XDG: /xdg/Code/User/mcp.json
    linux with XDG: /xdg/opencode/opencode.json
    macos: /u/Library/Application Support/Claude/claude_desktop_config.json
    macos: /u/.claude.json
    macos: /u/.cursor/mcp.json
    macos: /u/Library/Application Support/Code/User/mcp.json
    macos: /u/.config/opencode/opencode.json
    windows: /u/AppData/Roaming/Claude/claude_desktop_config.json
    windows: /u/.claude.json
    windows: /u/.cursor/mcp.json
    windows: /u/AppData/Roaming/Code/User/mcp.json
    windows: /u/.config/opencode/opencode.json
    ");
    let none: Environment<'_> = &|_| None;
    insta::assert_snapshot!(ClientFolders::from_env(Platform::Linux, none).unwrap_err(), @"`HOME` is not set, so the client's folder is unknown");
    let relative: Environment<'_> = &|_| Some("here".into());
    assert!(ClientFolders::from_env(Platform::Linux, relative).is_err());
}

#[test]
fn a_new_file_is_made_and_is_private() {
    let user = User::new();
    let plan = user.plan(ClientApp::Cursor, Transport::Http).unwrap();
    insta::assert_snapshot!(user.shown(plan.diff()), @r#"
    --- /dev/null
    +++ HOME/.cursor/mcp.json
    @@ -0,0 +1,10 @@
    +{
    +  "mcpServers": {
    +    "portcullis": {
    +      "url": "http://127.0.0.1:3000/mcp",
    +      "headers": {
    +        "Authorization": "Bearer pcl_01234567…"
    +      }
    +    }
    +  }
    +}
    "#);
    assert!(!plan.path.exists());
    assert_eq!(plan.apply(&FixedClock).unwrap(), None);
    assert_eq!(mode(&plan.path), 0o600);
    assert_eq!(
        std::fs::read_to_string(&plan.path).unwrap(),
        ClientApp::Cursor.snippet(Transport::Http, &endpoint())
    );
    // A second time there is nothing to do.
    let again = user.plan(ClientApp::Cursor, Transport::Http).unwrap();
    assert!(again.is_done() && again.diff().is_empty());
    assert_eq!(again.apply(&FixedClock).unwrap(), None);
}

#[test]
fn an_existing_file_keeps_everything_else() {
    let user = User::new();
    let text = "{\n    // my servers\n    \"inputs\": [],\n    \"servers\": {\n        \"github\": { \"url\": \"https://x\" }, // keep\n    },\n}\n";
    let path = user.write(".config/Code/User/mcp.json", text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let plan = user.plan(ClientApp::VsCode, Transport::Stdio).unwrap();
    insta::assert_snapshot!(user.shown(plan.diff()), @r#"
    --- HOME/.config/Code/User/mcp.json
    +++ HOME/.config/Code/User/mcp.json
    @@ -3,5 +3,16 @@
         "inputs": [],
         "servers": {
             "github": { "url": "https://x" }, // keep
    +        "portcullis": {
    +            "type": "stdio",
    +            "command": "/usr/local/bin/portcullis",
    +            "args": [
    +                "--home",
    +                "/home/me/hub",
    +                "stdio",
    +                "--client",
    +                "laptop"
    +            ]
    +        },
         },
     }
    "#);
    let backup = plan.apply(&FixedClock).unwrap().unwrap();
    assert_eq!(
        user.shown(backup.display()),
        "HOME/.config/Code/User/mcp.json.portcullis-20260101T000000Z.bak"
    );
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), text);
    assert_eq!((mode(&path), mode(&backup)), (0o640, 0o600));
    // With a token inside, nobody else may read it any more.
    user.plan(ClientApp::VsCode, Transport::Http).unwrap().apply(&LaterClock).unwrap().unwrap();
    assert_eq!(mode(&path), 0o600);
    let entries = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(entries, 3, "the file and two backups, and nothing left over");
}

struct LaterClock;

impl Clock for LaterClock {
    fn now(&self) -> SystemTime {
        FixedClock.now() + Duration::from_secs(1)
    }
}

#[test]
fn a_difference_shows_no_token() {
    let user = User::new();
    user.plan(ClientApp::ClaudeCode, Transport::Http).unwrap().apply(&FixedClock).unwrap();
    let other = Endpoint { token: Some(Secret::new(TOKEN.replace('0', "z"))), ..endpoint() };
    let changed = Endpoint { url: "http://127.0.0.1:4000/mcp".into(), ..other };
    let plan = ClientApp::ClaudeCode.plan(Transport::Http, &changed, &user.places()).unwrap();
    insta::assert_snapshot!(user.shown(plan.diff()), @r#"
    --- HOME/.claude.json
    +++ HOME/.claude.json
    @@ -2,9 +2,9 @@
       "mcpServers": {
         "portcullis": {
           "type": "http",
    -      "url": "http://127.0.0.1:3000/mcp",
    +      "url": "http://127.0.0.1:4000/mcp",
           "headers": {
    -        "Authorization": "Bearer pcl_01234567…"
    +        "Authorization": "Bearer pcl_z1234567…"
           }
         }
       }
    "#);
    assert!(!format!("{plan:?} {:?}", endpoint()).contains(&TOKEN[4..]));
}

#[test]
fn a_file_that_changed_meanwhile_is_left_alone() {
    let user = User::new();
    let plan = user.plan(ClientApp::ClaudeCode, Transport::Stdio).unwrap();
    let path = user.write(".claude.json", "{\"projects\": {}}");
    let error = plan.apply(&FixedClock).unwrap_err();
    insta::assert_snapshot!(user.shown(error), @"`HOME/.claude.json` changed meanwhile; review the new diff first");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"projects\": {}}");
}

#[test]
fn what_is_not_understood_is_left_to_a_person() {
    let user = User::new();
    user.write(".cursor/mcp.json", "{\"mcpServers\": []}");
    user.write(".claude.json", "{\"a\": 1, \"a\": 2}");
    std::fs::create_dir_all(user.home.path().join(".config/Claude/claude_desktop_config.json")).unwrap();
    let mut shown: Vec<String> = [ClientApp::Cursor, ClientApp::ClaudeCode, ClientApp::ClaudeDesktop]
        .map(|client| user.shown(user.plan(client, Transport::Stdio).unwrap_err()))
        .into();
    let without_token = Endpoint { token: None, ..endpoint() };
    let refused = ClientApp::OpenCode.plan(Transport::Http, &without_token, &user.places());
    shown.push(refused.unwrap_err().to_string());
    insta::assert_snapshot!(shown.join("\n"), @"
    cannot edit `HOME/.cursor/mcp.json` safely: `mcpServers` is not an object; add the entry yourself
    cannot edit `HOME/.claude.json` safely: key `a` is given twice at line 1 column 12; add the entry yourself
    cannot edit `HOME/.config/Claude/claude_desktop_config.json` safely: it is not a regular file; add the entry yourself
    an HTTP entry needs a token; create one with `portcullis clients add NAME`
    ");
}

#[test]
fn a_link_stays_a_link() {
    let user = User::new();
    let real = user.write("dotfiles/cursor.json", "{}");
    std::fs::create_dir_all(user.home.path().join(".cursor")).unwrap();
    let link = user.home.path().join(".cursor/mcp.json");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    user.plan(ClientApp::Cursor, Transport::Stdio).unwrap().apply(&FixedClock).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("portcullis"));
}

#[test]
fn opencode_is_served_in_the_form_its_file_has() {
    let user = User::new();
    user.write(".config/opencode/opencode.json", "{}");
    let path =
        user.write(".config/opencode/opencode.jsonc", "{\n  \"mcp\": {\n    \"servers\": {}\n  }\n}\n");
    let second = user.plan(ClientApp::OpenCode, Transport::Stdio).unwrap();
    assert_eq!(second.path, path.canonicalize().unwrap());
    std::fs::write(&path, "{\n  // v1\n  \"mcp\": {}\n}\n").unwrap();
    let first = user.plan(ClientApp::OpenCode, Transport::Stdio).unwrap();
    insta::assert_snapshot!(format!("{}--\n{}", second.after, first.after), @r#"
    {
      "mcp": {
        "servers": {
          "portcullis": {
            "type": "local",
            "command": [
              "/usr/local/bin/portcullis",
              "--home",
              "/home/me/hub",
              "stdio",
              "--client",
              "laptop"
            ]
          }
        }
      }
    }
    --
    {
      // v1
      "mcp": {
        "portcullis": {
          "type": "local",
          "command": [
            "/usr/local/bin/portcullis",
            "--home",
            "/home/me/hub",
            "stdio",
            "--client",
            "laptop"
          ],
          "enabled": true
        }
      }
    }
    "#);
}

#[test]
fn clients_have_names() {
    for client in ClientApp::ALL {
        assert_eq!(client.as_str().parse(), Ok(client));
    }
    insta::assert_snapshot!("emacs".parse::<ClientApp>().unwrap_err(), @"unsupported application `emacs`; expected one of claude-desktop, claude-code, cursor, vscode, opencode");
    assert!(ClientApp::ClaudeDesktop.note(Transport::Http).is_some());
    assert!(ClientApp::Cursor.note(Transport::Http).is_none());
}

#[test]
fn an_application_is_found_by_what_it_leaves_behind() {
    let user = User::new();
    let present = |app: ClientApp| app.presence(&user.places());
    assert!(ClientApp::ALL.iter().all(|app| present(*app) == AppPresence::Absent));
    user.write(".cursor/extensions/x", "");
    user.write(".claude.json", "{ not json");
    user.write(".config/Code/User/mcp.json", r#"{ "servers": { "portcullis": {} } /* mine */ }"#);
    user.write(".config/opencode/opencode.json", r#"{ "mcp": { "servers": { "portcullis": {} } } }"#);
    assert_eq!(
        ClientApp::ALL.map(present),
        [
            AppPresence::Absent,
            AppPresence::Found,
            AppPresence::Found,
            AppPresence::Configured,
            AppPresence::Configured,
        ]
    );
    // Planned, applied and found again, by each application.
    for app in [ClientApp::ClaudeDesktop, ClientApp::Cursor] {
        user.plan(app, Transport::Stdio).unwrap().apply(&FixedClock).unwrap();
        assert_eq!(present(app), AppPresence::Configured);
    }
}

#[test]
fn claude_code_adds_the_hub_with_one_command() {
    let of = |transport, endpoint: &Endpoint| ClientApp::ClaudeCode.add_command(transport, endpoint).unwrap();
    assert_eq!(
        of(Transport::Stdio, &Endpoint { home: "/home/me/my hub".into(), ..endpoint() }),
        "claude mcp add --scope user portcullis -- /usr/local/bin/portcullis --home '/home/me/my hub' stdio --client laptop"
    );
    assert_eq!(
        of(Transport::Http, &Endpoint { token: None, ..endpoint() }),
        "claude mcp add --scope user --transport http portcullis http://127.0.0.1:3000/mcp --header 'Authorization: Bearer YOUR_TOKEN'"
    );
    assert_eq!(ClientApp::Cursor.add_command(Transport::Stdio, &endpoint()), None);
    for (word, quoted) in [("a-b", "a-b"), ("", "''"), ("~/x", "'~/x'"), ("it's $HOME", "'it'\\''s $HOME'")] {
        assert_eq!(shell_word(word), quoted);
    }
}
