use super::*;
use portcullis_egress::PlainHttp;
use portcullis_tools::{
    CalendarsSection, GithubSection, MemorySection, PromptsSection, VaultSection, WebSection,
};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

mod faulty_files;

/// Loads one file and shows what a user would see of it.
fn check_file(name: &str, contents: impl AsRef<[u8]>, env: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(name), contents).unwrap();
    show(Config::load(home.path(), &of(env)))
}

fn check(toml: &str) -> String {
    check_file("portcullis.toml", toml, &[])
}

fn show(loaded: Result<LoadedConfig, ConfigErrors>) -> String {
    match loaded {
        Ok(loaded) if loaded.warnings.is_empty() => "fine".to_owned(),
        Ok(loaded) => format!("warning: {}", loaded.warnings.join("\nwarning: ")),
        Err(errors) => errors.to_string(),
    }
}

fn of<'a>(env: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
    |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
}

fn load(toml: &str) -> Config {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("portcullis.toml"), toml).unwrap();
    Config::load(home.path(), &of(&[])).unwrap().config
}

#[test]
fn the_reference_names_every_origin() {
    let names = Origin::ALL.map(Origin::as_str).join(", ");
    let about = &schema()["properties"]["policy"]["items"]["properties"]["origins"]["description"];
    assert!(about.as_str().unwrap().contains(&names), "{about}");
}

#[test]
fn a_server_that_is_named_like_a_family_goes_on_and_the_warning_says_what_to_do() {
    let server = |name: &str, more: &str| check(&format!("[mcp.{name}]\ncommand = \"run\"\n{more}"));
    assert_eq!(
        server("memory", ""),
        "warning: portcullis.toml: the tools of server `memory` are named like the hub's own `memory_*`, so rules for those match them too; set `mcp.memory.prefix` to \"memory-mcp_\", or rename the server"
    );
    assert_eq!(server("memory", "prefix = \"memory-mcp_\""), "fine");
    assert!(server("far", "prefix = \"web_\"").contains("set `mcp.far.prefix` to \"web-mcp_\""));
    assert!(server("vault", "prefix = \"\"").contains("the hub's own `vault_*`"));
    assert_eq!(server("far", ""), "fine");
}

#[test]
fn a_server_that_is_named_like_a_family_is_not_added() {
    let home = tempfile::tempdir().unwrap();
    for (name, other) in [("memory", "memory-mcp"), ("web_search", "web-search"), ("tachyon", "tachyon-mcp")]
    {
        let server = |name: &str| NewServer {
            name: name.to_owned(),
            command: Some("run".to_owned()),
            ..NewServer::default()
        };
        let refused = add_servers(home.path(), &of(&[]), &[server(name)]).unwrap_err().to_string();
        assert!(refused.contains(&format!("call it `{other}`")), "{refused}");
        assert!(!home.path().join("portcullis.toml").exists());
        assert_eq!((importable_name(name).as_str(), importable_name(other).as_str()), (other, other));
        assert!(check_server(home.path(), &of(&[]), &server(other)).is_ok());
    }
}

#[test]
fn no_file_is_the_defaults() {
    let home = tempfile::tempdir().unwrap();
    let loaded = Config::load(home.path(), &of(&[])).unwrap();
    assert_eq!((loaded.path, loaded.warnings), (None, vec![]));
    let config = loaded.config;
    assert_eq!(config.http.listen, "127.0.0.1:3000".parse().unwrap());
    assert_eq!(
        config.rate_limit,
        RateLimitSettings { requests_per_second: 10, burst: 20, wait: Duration::from_secs(1) }
    );
    let ceiling = portcullis_core::CallLimits::CEILING;
    assert_eq!(
        (config.limits.call_within, config.limits.result_bytes_max),
        (ceiling.deadline(), ceiling.output_bytes_max)
    );
    assert_eq!(config.logging, LoggingSettings { level: Level::Info, format: LogFormat::Text });
    assert_eq!(config.workspace.data_dir(), home.path().join("workspace/ai-data"));
    assert_eq!(config.workspace.secure_dir(), home.path().join("workspace/secure"));
    assert_eq!(config.section::<PromptsSection>().unwrap().path, home.path().join("prompts"));
    assert!(
        config.workspace.enabled
            && config.section::<MemorySection>().unwrap().enabled
            && config.policy.is_empty()
    );
    assert_eq!(config.stdio.client, "local");
    assert_eq!(config.stdio.scope.effects, EffectSet::ALL);
    // A home folder that does not exist yet is not an error either.
    assert!(Config::load(&home.path().join("gone"), &of(&[])).is_ok());
}

#[test]
fn every_key_is_understood() {
    let config = load(
        r#"
        [http]
        listen = "[::1]:4000"
        allowed_hosts = ["Hub.Example.com", "hub:8443", "[::1]:4000"]
        allowed_origins = ["https://App.example.com", "vscode-webview://abc"]
        [rate_limit]
        requests_per_second = 5.0
        burst = 0x10
        [logging]
        level = "trace"
        format = "json"
        [workspace]
        path = "/srv/hub"
        enabled = false
        [memory]
        enabled = false
        [stdio]
        client = "desk_1"
        allow = ["workspace_*", "memory_read"]
        effects = ["read"]
        [limits]
        line_bytes_max = 1_000_000
        session_idle_secs = 60
        keep_alive_secs = 5
        token_lockout_secs = 7
        [[policy]]
        tools = ["workspace_write"]
        clients = ["desk_*"]
        origins = ["client", "script"]
        effects = ["write"]
        reach = "local"
        hours = "22:00-06:00"
        days = ["mon-wed", "fri"]
        until = 2026-12-31T12:00:00
        decision = "ask"
        [[policy]]
        decision = "deny"
        [time]
        timezone = "Europe/Vienna"
        "#,
    );
    assert_eq!(config.http.listen, "[::1]:4000".parse().unwrap());
    assert_eq!(config.http.allowed_hosts, ["hub.example.com", "hub:8443", "[::1]:4000"]);
    assert_eq!(config.http.allowed_origins, ["https://app.example.com", "vscode-webview://abc"]);
    assert_eq!(
        config.rate_limit,
        RateLimitSettings { requests_per_second: 5, burst: 16, wait: Duration::from_secs(1) }
    );
    assert_eq!(config.logging, LoggingSettings { level: Level::Trace, format: LogFormat::Json });
    assert_eq!(config.workspace.path, Path::new("/srv/hub"));
    assert_eq!((config.limits.line_bytes_max, config.limits.session_idle.as_secs()), (1_000_000, 60));
    assert_eq!((config.limits.keep_alive.as_secs(), config.limits.token_lockout.as_secs()), (5, 7));
    let [first, second] = &config.policy[..] else { panic!("two rules") };
    assert!(first.tools.matches("workspace_write") && !first.tools.matches("workspace_read"));
    assert_eq!(
        (first.origins.as_slice(), first.reach),
        (&[Origin::Client, Origin::Script][..], Some(Reach::Local))
    );
    assert_eq!((first.decision, second.decision), (ConfiguredDecision::Ask, ConfiguredDecision::Deny));
    let RuleSchedule { hours, days, until } = first.when;
    assert_eq!(hours.unwrap().to_string(), "22:00-06:00");
    assert_eq!(days.unwrap().to_string(), "mon,tue,wed,fri");
    // Noon in Vienna.
    assert_eq!(until, Some("2026-12-31T11:00:00Z".parse().unwrap()));
    assert!(second.when.is_always());
    assert_eq!(config.time.zone.iana_name(), Some("Europe/Vienna"));
    assert_eq!((first.line, second.line), (Some(26), Some(36)));
    assert!(second.tools.matches("anything") && second.clients.matches("anyone"));
    assert_eq!(
        (second.effects, second.reach, second.origins.len()),
        (EffectSet::ALL, None, Origin::ALL.len())
    );
}

#[test]
fn the_web_is_there_when_its_section_is() {
    assert_eq!(load("").section::<WebSection>(), None);
    let config = load("[web]\n");
    let web = config.section::<WebSection>().unwrap();
    assert_eq!((web.plain_http, web.respect_robots, &web.user_agent), (PlainHttp::Refused, false, &None));
    let config = load(
        "[web]\nhttp = true\nuser_agent = \"x/1\"\nallow = [\"Example.com\"]\n[egress]\nallow = [\"127.0.0.1:80\", \"a.b:443\"]\n",
    );
    let web = config.section::<WebSection>().unwrap();
    assert_eq!((web.plain_http, web.user_agent.as_deref()), (PlainHttp::Allowed, Some("x/1")));
    assert_eq!(web.allow, ["example.com"]);
    let places: Vec<String> = config.egress.exceptions.iter().map(ToString::to_string).collect();
    assert_eq!(places, ["127.0.0.1:80", "a.b:443"]);
    insta::assert_snapshot!(check(
        "[web]\nuser_agent = \"a\\nb\"\ndeny = [\"https://x.test/\", \"x.test:80\"]\n[egress]\nallow = [\"10.0.0.0/8\", \"*:80\"]\nper_host_burst = 0\n"
    ), @r##"
    portcullis.toml:2: `web.user_agent` is "a\u{a}b", expected up to 256 printable ASCII characters
    portcullis.toml:3: `web.deny[0]` is "https://x.test/", expected a domain like example.com
    portcullis.toml:3: `web.deny[1]` is "x.test:80", expected a domain like example.com
    portcullis.toml:5: `egress.allow[0]` is "10.0.0.0/8", expected a host and a port, like 127.0.0.1:8080 or internal.example:443
    portcullis.toml:5: `egress.allow[1]` is "*:80", expected a host and a port, like 127.0.0.1:8080 or internal.example:443
    portcullis.toml:6: `egress.per_host_burst` is 0, expected 1 to 1000000
    "##);
}

#[test]
fn everything_wrong_is_told_at_once() {
    insta::assert_snapshot!(check(r#"
[http]
listen = "3000"
allowed_hosts = ["https://hub.example.com", "a b"]
allowed_origins = ["https://app.example.com/", "*"]
[rate_limit]
brust = 20
requests_per_second = 0
[logging]
level = "inf"
format = 3
[workspace]
path = ""
enabled = "yes"
[stdio]
client = "My Laptop"
allow = ["a[", "fine_*", ""]
effects = ["read", "erase"]
[limits]
sessions_max = 10
sessions_per_client_max = 11
[[policy]]
tools = []
[[policy]]
tool = ["x"]
decision = "maybe"
reach = "moon"
[mcp.github]
url = "https://example.com"
[nonsense]
x = 1
"#), @r#"
portcullis.toml:3: `http.listen` is "3000", expected an address like 127.0.0.1:3000
portcullis.toml:4: `http.allowed_hosts[0]` is "https://hub.example.com", expected a host name like hub.example.com, with :port if needed
portcullis.toml:4: `http.allowed_hosts[1]` is "a b", expected a host name like hub.example.com, with :port if needed
portcullis.toml:5: `http.allowed_origins[0]` is "https://app.example.com/", expected an origin like https://app.example.com, without a path
portcullis.toml:5: `http.allowed_origins[1]` is "*", expected an origin like https://app.example.com, without a path
portcullis.toml:7: `rate_limit.brust` is not a setting; did you mean `burst`?
portcullis.toml:8: `rate_limit.requests_per_second` is 0, expected 1 to 1000000
portcullis.toml:10: `logging.level` is "inf", expected error, warn, info, debug or trace
portcullis.toml:11: `logging.format` is 3, expected text or json
portcullis.toml:13: `workspace.path` is "", expected text like "workspace"
portcullis.toml:14: `workspace.enabled` is "yes", expected true or false
portcullis.toml:16: `stdio.client` is "My Laptop", expected a name of a-z, 0-9, `-` and `_`, 1 to 64 characters
portcullis.toml:17: `stdio.allow[0]` is "a[", expected a glob like workspace_*: unclosed character class; missing ']'
portcullis.toml:17: `stdio.allow[2]` is "", expected a glob like workspace_*: expected 1 to 512 bytes
portcullis.toml:18: `stdio.effects[1]` is "erase", expected read, create, write or destroy
portcullis.toml:21: `limits.sessions_per_client_max` is 11, expected at most `limits.sessions_max`, 10
portcullis.toml:22: `policy[0].decision` is missing, expected allow, ask or deny
portcullis.toml:23: `policy[0].tools` is an empty list, expected at least one entry, in a list like ["workspace_*"]
portcullis.toml:25: `policy[1].tool` is not a setting; did you mean `tools`?
portcullis.toml:26: `policy[1].decision` is "maybe", expected allow, ask or deny
portcullis.toml:27: `policy[1].reach` is "moon", expected local or outside
portcullis.toml:30: `nonsense` is not a setting; `portcullis init --print` shows all settings
"#);
}

#[test]
fn times_that_are_none_are_named() {
    insta::assert_snapshot!(check(r#"
[[policy]]
hours = "22-06"
days = ["monday", "mon", "Sat-Sunday", "holidays"]
until = "2026-12-31"
decision = "ask"
[[policy]]
hours = "08:00-08:00"
days = []
until = "2026-02-30T00:00:00Z"
decision = "ask"
[[policy]]
hours = 22
day = ["mon"]
until = "2026-12-31T00:00[Europe/Vienna]"
decision = "ask"
[time]
timezone = "Europe/Viena"
"#), @r#"
    portcullis.toml:3: `policy[0].hours` is "22-06", expected two different times like "22:00-06:00"
    portcullis.toml:4: `policy[0].days[0]` is "monday", expected one of mon, tue, wed, thu, fri, sat, sun or a range of them; did you mean `mon`?
    portcullis.toml:4: `policy[0].days[2]` is "Sat-Sunday", expected one of mon, tue, wed, thu, fri, sat, sun or a range of them; did you mean `sat-sun`?
    portcullis.toml:4: `policy[0].days[3]` is "holidays", expected one of mon, tue, wed, thu, fri, sat, sun or a range like mon-fri
    portcullis.toml:5: `policy[0].until` is "2026-12-31", expected a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00
    portcullis.toml:8: `policy[1].hours` is "08:00-08:00", expected two different times like "22:00-06:00"
    portcullis.toml:9: `policy[1].days` is an empty list, expected at least one entry, in a list like ["mon-fri"]
    portcullis.toml:10: `policy[1].until` is "2026-02-30T00:00:00Z", expected a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00
    portcullis.toml:13: `policy[2].hours` is 22, expected text like "22:00-06:00"
    portcullis.toml:14: `policy[2].day` is not a setting; did you mean `days`?
    portcullis.toml:15: `policy[2].until` is "2026-12-31T00:00[Europe/Vienna]", expected a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00
    portcullis.toml:18: `time.timezone` is "Europe/Viena", expected system or a time zone; did you mean `Europe/Vienna`?
    "#);
    insta::assert_snapshot!([
        check("[[policy]]\nuntil = 12:00:00\ndecision = 'ask'\n"),
        check("[[policy]]\nuntil = 2026-12-31\ndecision = 'ask'\n[time]\ntimezone = 'Nowhere'\n"),
        check("[time]\ntimzone = 'UTC'\n"),
        check(&format!("[time]\ntimezone = '{}'\n", "x".repeat(5_000))).chars().take(60).collect(),
        check_file("portcullis.yaml", "policy:\n  - until: 2026-12-31T00:00\n    days: [sun]\n    decision: ask\n", &[]),
        check_file("portcullis.json", r#"{"policy": [{"hours": "8-9", "decision": "ask"}]}"#, &[]),
    ].join("\n"), @r#"
    portcullis.toml:2: `policy[0].until` is "12:00:00", expected a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00
    portcullis.toml:2: `policy[0].until` is "2026-12-31", expected a date and time like 2026-12-31T00:00:00Z or 2026-12-31T00:00
    portcullis.toml:5: `time.timezone` is "Nowhere", expected system or a time zone like Europe/Vienna
    portcullis.toml:2: `time.timzone` is not a setting; did you mean `timezone`?
    portcullis.toml:2: `time.timezone` is "[5000 bytes, not show
    fine
    portcullis.json: `policy[0].hours` is "8-9", expected two different times like "22:00-06:00"
    "#);
}

#[test]
fn a_slip_gets_the_nearest_key() {
    insta::assert_snapshot!(check("listen = \"127.0.0.1:1\"\n[htpp]\n[limits]\nsesions_max = 1\nzzz = 1\n[Logging]\n[rate_limit]\nzzz = 1\n[memory.enabled]\nx = 1"), @"
    portcullis.toml:1: `listen` is not a setting; did you mean `http.listen`?
    portcullis.toml:2: `htpp` is not a setting; did you mean `http`?
    portcullis.toml:4: `limits.sesions_max` is not a setting; did you mean `sessions_max`?
    portcullis.toml:5: `limits.zzz` is not a setting; `portcullis init --print` shows all settings
    portcullis.toml:6: `Logging` is not a setting; did you mean `logging`?
    portcullis.toml:8: `rate_limit.zzz` is not a setting; expected `requests_per_second`, `burst` or `wait_ms`
    portcullis.toml:9: `memory.enabled` is a table, expected true or false
    ");
}

#[test]
fn what_no_server_and_no_variable_can_be_called_is_refused() {
    insta::assert_snapshot!(check(r#"
[mcp."a.b"]
command = "npx"
[mcp.""]
command = "npx"
[mcp.names]
command = "npx"
env = { "A=B" = "x", "" = "x", "A\u0000" = "x", C = "x\u0000" }
"#), @r#"
    portcullis.toml:2: `mcp` has a server named "a.b", expected letters, digits, `-` and `_`, 1 to 32 of them
    portcullis.toml:4: `mcp` has a server named "", expected letters, digits, `-` and `_`, 1 to 32 of them
    portcullis.toml:8: `mcp.names.env` has a variable named "", expected one without `=` and NUL
    portcullis.toml:8: `mcp.names.env` has a variable named "A\u{0}", expected one without `=` and NUL
    portcullis.toml:8: `mcp.names.env` has a variable named "A=B", expected one without `=` and NUL
    portcullis.toml:8: `mcp.names.env` has a character in `C` that no variable can hold
    "#);
}

#[test]
fn a_server_is_a_program_or_a_place() {
    insta::assert_snapshot!(check(r#"
[mcp.neither]
[mcp.both]
command = "npx"
url = "https://mcp.example.com/mcp"
[mcp.program]
command = "npx"
headers = { X-Key = "1" }
[mcp.place]
url = "https://mcp.example.com/mcp"
args = ["x"]
cwd = "/"
env = { A = "b" }
[mcp.bad]
url = "ftp://mcp.example.com"
[mcp.login]
url = "https://me:secret@mcp.example.com"
[mcp.relative]
url = "unix:run/x.sock"
[mcp.taken]
url = "unix:/run/x.sock:/mcp"
headers = { Host = "x", Mcp-Name = "y", Authorization = "Bearer secret:TOKEN", "a b" = "c" }
"#), @r#"
portcullis.toml:2: `mcp.neither.command` is missing, expected the program to start, like "npx", or `url`
portcullis.toml:5: `mcp.both` has `command` and `url`, expected one of them
portcullis.toml:8: `mcp.program.headers` is for a server with `url`; use `env`
portcullis.toml:11: `mcp.place.args` is for a server with `command`
portcullis.toml:12: `mcp.place.cwd` is for a server with `command`
portcullis.toml:13: `mcp.place.env` is for a server with `command`
portcullis.toml:15: `mcp.bad.url` is not a valid URL: expected https://, http:// or unix:
portcullis.toml:17: `mcp.login.url` is not a valid URL: the URL contains a user name or password; put them into `headers`
portcullis.toml:19: `mcp.relative.url` is not a valid URL: the socket path must be absolute, like unix:/run/notes.sock:/mcp
portcullis.toml:22: `mcp.taken.headers` is "Host", expected header names that the hub does not set itself
portcullis.toml:22: `mcp.taken.headers` is "Mcp-Name", expected header names that the hub does not set itself
portcullis.toml:22: a key in `mcp.taken.headers` is not a header name, expected NAME = "VALUE"
"#);
}

#[test]
fn the_vault_is_there_when_its_section_is() {
    assert_eq!(load("").section::<VaultSection>(), None);
    let vault = |toml: &str| load(toml).section::<VaultSection>().unwrap().clone();
    let plain = vault("[vault]\n");
    assert!(plain.path.ends_with("vault") && plain.sync.is_none());
    let local = vault("[vault]\npath = \"/tmp/Notes\"\ngit_repo = \"git@example.com:me/notes.git\"\n");
    assert_eq!(local.sync, None, "nothing is synced unless `auto_sync` says so");
    let synced = vault(
        "[vault]\ngit_repo = \"https://example.com/n.git\"\nauto_sync = true\ngit_token = \"secret:NOTES\"\npull_after_secs = 5\n",
    );
    let sync = synced.sync.unwrap();
    assert_eq!((sync.address.as_str(), sync.token.unwrap().name()), ("https://example.com/n.git", "NOTES"));
    assert_eq!((sync.author.name.as_str(), sync.pull_after.as_secs()), ("Portcullis", 5));
    insta::assert_snapshot!(check(
        "[vault]\npath = \".\"\ngit_repo = \"https://me:hunter2@example.com/n.git\"\ngit_token = \"ghp_value\"\ngit_author = \"me\"\ngit_user = \"a:b\"\npul_after_secs = 1\n"
    ), @r#"
    portcullis.toml:2: `vault.path` is ".", expected a folder outside the hub's own data
    portcullis.toml:3: `vault.git_repo` is "https://…@example.com/n.git", expected an address without a password; use `vault.git_token`
    portcullis.toml:4: `vault.git_token` is "…", expected a handle like secret:NOTES_TOKEN
    portcullis.toml:5: `vault.git_author` is "me", expected a name and address like Me <me@example.com>
    portcullis.toml:6: `vault.git_user` is "a:b", expected a user name without spaces and colons
    portcullis.toml:7: `vault.pul_after_secs` is not a setting; did you mean `pull_after_secs`?
    "#);
    insta::assert_snapshot!(check(
        "[vault]\npath = \"workspace/secure/notes\"\ngit_repo = \"ext::sh -c x\"\nauto_sync = true\ngit_timeout_secs = 0\n"
    ), @r#"
    portcullis.toml:2: `vault.path` is "workspace/secure/notes", expected a folder outside the hub's own data
    portcullis.toml:3: `vault.git_repo` is "ext::sh -c x", expected an address without blanks
    portcullis.toml:5: `vault.git_timeout_secs` is 0, expected 1 to 120
    "#);
    insta::assert_snapshot!(check("[vault]\nauto_sync = true\n"), @r#"
    portcullis.toml:1: `vault.git_repo` is "", expected the repository that `vault.auto_sync` syncs with
    "#);
    insta::assert_snapshot!(check("[vault]\ngit_repo = \"http://example.com/n.git\"\ngit_token = \"secret:A\"\n"), @r#"portcullis.toml:3: `vault.git_token` is "…", expected empty: a token is sent to https:// URLs only"#);
}

#[test]
fn what_later_versions_have_is_named_as_such() {
    let sections = "[web]\n[schedules]\n[http]\nmcp = 1\n";
    insta::assert_snapshot!(check(sections), @"
    portcullis.toml:2: `schedules` is not supported by this version
    portcullis.toml:4: `http.mcp` is not a setting; expected `listen`, `allowed_hosts` or `allowed_origins`
    ");
}

#[test]
fn what_reaches_outside_is_checked_and_keys_are_not_shown() {
    let calendars = "[[calendars]]\nname = 'Personal'\nurl = 'secret:PERSONAL_ICS'\n[[calendars]]\nname = 'Work'\nfile = 'work.ics'\n\
        [[calendars]]\nname = 'Public'\nurl = 'webcal://example.com/x.ics'\n";
    let github = "[github]\nbase_url = 'https://github.example.com/api/v3'\nrepositories = ['a/b', 'c/*']\n[egress]\nca_file = 'ca.pem'\n";
    assert_eq!(check(&format!("{github}{calendars}")), "fine");
    let config = load(&format!("[github]\n{calendars}"));
    assert_eq!(config.section::<GithubSection>().unwrap().token.to_string(), "secret:GITHUB_TOKEN");
    assert!(!format!("{:?}", config.section::<CalendarsSection>().unwrap()).contains("example.com"));
    let wrong = "[github]\ntoken = 'ghp_the-token-itself'\nbase_url = 'github.com'\nrepositories = ['a', 'a/../b']\n\
        [[calendars]]\nname = 'A'\nurl = 'private-link.ics'\n[[calendars]]\nname = 'B'\n[[calendars]]\nname = 'B'\nurl = 'https://x/'\nfile = 'x'\n\
        [[calendars]]\nname = ''\nurl = 'secret:lower'\n[[calendars]]\nname = 'C'\nfile = 'c'\nulr = 'x'\n[[calendars]]\nname = 'c'\nfile = 'c'\n";
    let said = check(wrong);
    assert!(!said.contains("ghp_") && !said.contains("private-link"), "{said}");
    insta::assert_snapshot!(said, @r#"
    portcullis.toml:2: `github.token` is invalid, expected secret:NAME, stored with `portcullis secrets set NAME`
    portcullis.toml:3: `github.base_url` is "github.com", expected a URL like https://github.example.com/api/v3
    portcullis.toml:4: `github.repositories[0]` is "a", expected a repository like octocat/hello-world or octocat/*
    portcullis.toml:4: `github.repositories[1]` is "a/../b", expected a repository like octocat/hello-world or octocat/*
    portcullis.toml:7: `calendars[0].url` is invalid, expected a URL like https://example.com/me.ics, or better secret:NAME
    portcullis.toml:8: `calendars[1]` needs either `url` or `file`
    portcullis.toml:10: `calendars[2]` needs either `url` or `file`
    portcullis.toml:15: `calendars[3].name` is "", expected a name of 1 to 64 characters
    portcullis.toml:16: `calendars[3].url` is invalid, expected a URL like https://example.com/me.ics, or better secret:NAME
    portcullis.toml:20: `calendars[4].ulr` is not a setting; did you mean `url`?
    portcullis.toml:22: `calendars[5].name` is "c", expected a unique name
    "#);
}

#[test]
fn broken_files() {
    let toml = |text: &str| check_file("portcullis.toml", text, &[]);
    let yaml = |text: &str| check_file("portcullis.yaml", text, &[]);
    let json = |text: &str| check_file("portcullis.json", text, &[]);
    insta::assert_snapshot!([
        toml("[http\nlisten = 1\n[memory]\nenabled = tru\n"),
        toml("[http]\nlisten = \"a:1\"\nlisten = \"b:2\"\n[http]\n"),
        toml("[limits]\nsessions_max = 99999999999999999999\nin_flight_max = inf\n"),
        toml("[rate_limit]\nburst = 2.5\nrequests_per_second = -1\n"),
        toml("memory.enabled = 1979-05-27\n"),
        yaml("http:\n  listen: 127.0.0.1:1\n  listen: 127.0.0.1:2\n"),
        yaml("http: [1\n"),
        yaml("- 1\n"),
        yaml("http:\nmemory:\n  enabled: yes\n  brust: 1\n"),
        yaml("a: &a [x]\n<<: *a\n"),
        json("{\n\"http\": {\"listen\": \"x\", \"listen\": \"y\"}}"),
        json("{\n\"memory\": {\"enabled\": tru}}"),
        json("[]"),
        json("{\"http\": null, \"memory\": {\"enabled\": 1}}"),
        check_file("portcullis.toml", b"[http]\n# \xff\n", &[]),
        check_file("portcullis.toml", vec![b'#'; 1024 * 1024 + 1], &[]),
    ].join("\n"), @r#"
    portcullis.toml:1: unclosed table, expected `]`
    portcullis.toml:4: invalid boolean, expected `true`
    portcullis.toml:3: key `listen` is given twice
    portcullis.toml:4: key `http` is given twice
    portcullis.toml:2: `limits.sessions_max` is 99999999999999999999, which is too large a number
    portcullis.toml:3: `limits.in_flight_max` is inf, expected a finite number
    portcullis.toml:2: `rate_limit.burst` is 2.5, expected a whole number, 1 to 1000000
    portcullis.toml:3: `rate_limit.requests_per_second` is -1, expected 1 to 1000000
    portcullis.toml:1: `memory.enabled` is an unquoted date or time, which is allowed for `until` of a rule only
    portcullis.yaml:3: key `listen` is given twice
    portcullis.yaml:1: unclosed bracket '['
    portcullis.yaml: expected a table of settings
    portcullis.yaml:1: `http` is empty, expected a table of settings
    portcullis.yaml:3: `memory.enabled` is "yes", expected true or false
    portcullis.yaml:4: `memory.brust` is not a setting; expected `enabled`
    portcullis.yaml:2: YAML merge keys are not allowed by configured policy
    portcullis.json:2: key `listen` is given twice
    portcullis.json:2: expected ident
    portcullis.json: expected a table of settings
    portcullis.json: `http` is empty, expected a table of settings
    portcullis.json: `memory.enabled` is 1, expected true or false
    portcullis.toml:2: is not UTF-8 text
    portcullis.toml: is larger than 1048576 bytes
    "#);
}

#[test]
fn a_file_full_of_nonsense_is_told_in_a_hundred_lines() {
    let keys: String = (0..80_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(check(&keys).lines().count(), 100);
    assert_eq!(check(&"k = 1\n".repeat(100_000)).lines().count(), 100);
}

#[test]
fn yaml_and_json_mean_the_same() {
    let yaml =
        "# comment\nhttp:\n  listen: 127.0.0.1:4000\npolicy:\n  - tools: ['a_*']\n    decision: deny\n";
    let json = r#"{"$schema": "x", "http": {"listen": "127.0.0.1:4000"}, "policy": [{"tools": ["a_*"], "decision": "deny"}]}"#;
    let toml = "http.listen = '127.0.0.1:4000'\n[[policy]]\ntools = ['a_*']\ndecision = 'deny'\n";
    let written = |name: &str, text: &str| {
        let document = read::parse(name, text).unwrap();
        written::schema_check::check(&document.value, FAMILIES)
            .map(|(written, findings)| (written.value(), findings.len()))
            .unwrap()
    };
    let expected = written("portcullis.toml", toml);
    assert_eq!(expected.1, 0);
    assert_eq!(written("portcullis.yaml", yaml), expected);
    assert_eq!(written("portcullis.yml", yaml), expected);
    assert_eq!(written("portcullis.json", json), expected);
    let defaults = WrittenDocument::read(serde_json::json!({}), FAMILIES).unwrap().value();
    for empty in [
        ("portcullis.toml", ""),
        ("portcullis.yaml", ""),
        ("portcullis.yaml", "# only\n"),
        ("portcullis.json", "{}"),
    ] {
        assert_eq!(written(empty.0, empty.1), (defaults.clone(), 0), "{empty:?}");
    }
}

#[test]
fn yaml_knows_its_lines() {
    let text = "http:\n  listen: 3000\npolicy:\n  - decision: deny\n  - tools: ['[']\n    decision: mabye\n";
    insta::assert_snapshot!(check_file("portcullis.yaml", text, &[]), @r#"
    portcullis.yaml:2: `http.listen` is 3000, expected text like "127.0.0.1:3000"
    portcullis.yaml:5: `policy[1].tools[0]` is "[", expected a glob like workspace_*: unclosed character class; missing ']'
    portcullis.yaml:6: `policy[1].decision` is "mabye", expected allow, ask or deny
    "#);
}

#[test]
fn two_files_are_one_too_many() {
    let home = tempfile::tempdir().unwrap();
    for name in ["portcullis.toml", "portcullis.json"] {
        std::fs::write(home.path().join(name), "").unwrap();
    }
    insta::assert_snapshot!(show(Config::load(home.path(), &of(&[]))), @"portcullis.toml: `portcullis.json` exists too; keep only one of them");
}

#[test]
fn only_a_regular_file_is_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("portcullis.toml");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(show(Config::load(home.path(), &of(&[]))), "portcullis.toml: is not a regular file");
    std::fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(show(Config::load(home.path(), &of(&[]))), "portcullis.toml: is not a regular file");
    std::fs::remove_file(&path).unwrap();
    // A link that leads nowhere is not the same as no file.
    std::os::unix::fs::symlink("/nonexistent/portcullis.toml", &path).unwrap();
    assert!(show(Config::load(home.path(), &of(&[]))).starts_with("portcullis.toml: cannot be read"));
}

#[test]
fn what_should_be_looked_at_is_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("portcullis.toml");
    std::fs::write(&path, "[http]\nlisten = \"0.0.0.0:3000\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let shown = show(Config::load(home.path(), &of(&[]))).replace(&home.path().display().to_string(), "HOME");
    insta::assert_snapshot!(shown, @"
    warning: portcullis.toml: it is writable by all users; run `chmod o-w HOME/portcullis.toml`
    warning: portcullis.toml: `http.listen` is 0.0.0.0:3000, which other machines can reach; tokens are sent unencrypted, so use a TLS proxy
    ");
}

#[test]
fn the_environment_changes_the_port() {
    let listen = |env: &[(&str, &str)], toml: &str| {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("portcullis.toml"), toml).unwrap();
        Config::load(home.path(), &of(env)).map(|loaded| loaded.config.http.listen.to_string())
    };
    assert_eq!(listen(&[("MCP_HTTP_PORT", "8080")], "").unwrap(), "127.0.0.1:8080");
    assert_eq!(listen(&[("MCP_HTTP_PORT", "8080")], "http.listen = '[::1]:1'").unwrap(), "[::1]:8080");
    assert_eq!(listen(&[("MCP_HTTP_PORT", "")], "").unwrap(), "127.0.0.1:3000");
    insta::assert_snapshot!([
        check_file("portcullis.toml", "", &[("MCP_HTTP_PORT", "http")]),
        check_file("portcullis.toml", "[http]\nlisten = 'x'\nlisen = 1", &[("MCP_HTTP_PORT", "65536")]),
        check_file("portcullis.toml", "[workspace]\npath = '~/hub'", &[]),
        check_file("portcullis.toml", "[workspace]\npath = '~/hub'", &[("HOME", "/home/me")]),
    ].join("\n"), @r#"
    environment: `MCP_HTTP_PORT` is "http", expected a port, 0 to 65535
    portcullis.toml:2: `http.listen` is "x", expected an address like 127.0.0.1:3000
    portcullis.toml:3: `http.lisen` is not a setting; did you mean `listen`?
    environment: `MCP_HTTP_PORT` is "65536", expected a port, 0 to 65535
    portcullis.toml:2: `workspace.path` is "~/hub", expected a path without `~`, because HOME is not set
    fine
    "#);
}

#[test]
fn a_change_tells_whether_it_needs_a_restart() {
    let before = load("");
    let same = load("[http]\nlisten = '127.0.0.1:3000'\n");
    let live = load("[rate_limit]\nburst = 1\n[logging]\nlevel = 'warn'\n[[policy]]\ndecision = 'ask'\n");
    let heavy =
        load("[limits]\nsessions_max = 5000\n[http]\nlisten = '127.0.0.1:1'\nallowed_hosts = ['x']\n");
    assert_eq!(before.diff_needs_restart(&same), [""; 0]);
    assert_eq!(before.diff_needs_restart(&live), [""; 0]);
    assert_eq!(before.diff_needs_restart(&heavy), ["http.listen", "limits.sessions_max"]);
}

#[test]
fn the_schema_explains_every_key_and_uses_only_what_is_understood() {
    fn visit(node: &serde_json::Value, path: &str) {
        let known = [
            "$schema",
            "title",
            "description",
            "type",
            "properties",
            "additionalProperties",
            "required",
            "default",
            "items",
            "minItems",
            "minLength",
            "minimum",
            "maximum",
            "format",
            "enum",
            "examples",
        ];
        let members = node.as_object().unwrap();
        for keyword in members.keys() {
            assert!(known.contains(&keyword.as_str()), "{path}: {keyword}");
        }
        let bounded = node["type"] != "integer" || (node["minimum"].is_u64() && node["maximum"].is_u64());
        assert!(bounded, "{path} has no range");
        for (key, inner) in node["properties"].as_object().into_iter().flatten() {
            assert!(inner["description"].is_string(), "{path}.{key} is not explained");
            visit(inner, &format!("{path}.{key}"));
        }
        if !node["items"].is_null() {
            visit(&node["items"], &format!("{path}[]"));
        }
    }
    visit(&schema(), "");
}

/// Returns every key of the schema; a list of tables counts as one.
pub(super) fn keys() -> Vec<String> {
    let schema = schema();
    let sections = schema["properties"].as_object().unwrap().iter().filter(|(name, _)| *name != "$schema");
    let keys = sections.flat_map(|(section, node)| match node["properties"].as_object() {
        Some(keys) => keys.keys().map(|key| format!("{section}.{key}")).collect(),
        None => vec![section.clone()],
    });
    keys.collect()
}

mod any_bytes {
    use super::*;
    use proptest::prelude::*;

    /// Text that gets past the parser often enough to reach the checks.
    fn almost_toml() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "[http]\n",
            "[limits]\n",
            "[[policy]]\n",
            "[policy]\n",
            "listen",
            "tools",
            "decision",
            " = ",
            "\"x\"",
            "\n",
            "[",
            "]",
            "1",
            "-1",
            "1e400",
            "{ a = 1 }",
            "\"*\"",
            "true",
            ".",
            "#",
            "\u{0}",
            "é",
            "'[a'",
            "policy",
        ]);
        prop::collection::vec(word, 0..20).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in almost_toml()) {
            for name in ["portcullis.toml", "portcullis.yaml", "portcullis.json"] {
                for contents in [bytes.as_slice(), text.as_bytes()] {
                    for line in check_file(name, contents, &[]).lines() {
                        prop_assert!(line == "fine" || line.starts_with("portcullis."), "{line}");
                        prop_assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_prefix_says_what_stands_between_or_leaves_it_out() {
    let home = tempfile::tempdir().unwrap();
    let server = |name: &str, prefix: &str| format!("[mcp.{name}]\ncommand = \"x\"\n{prefix}\n");
    let written = [("a", ""), ("b", "prefix = \"g\""), ("c", "prefix = \"g_\""), ("d", "prefix = \"\"")];
    let sections: String = written.iter().map(|(name, prefix)| server(name, prefix)).collect();
    std::fs::write(home.path().join("portcullis.toml"), sections).unwrap();
    let config = Config::load(home.path(), &of(&[])).unwrap().config;
    let prefixes: Vec<&str> = config.mcp.iter().map(|server| server.prefix.as_str()).collect();
    assert_eq!(prefixes, ["a_", "g_", "g_", ""]);
}

#[test]
fn a_prefix_that_no_name_could_have_is_refused() {
    let long = "x".repeat(33);
    for written in ["my.srv/", "a b", "_", long.as_str()] {
        let told = check(&format!("[mcp.a]\ncommand = \"x\"\nprefix = \"{written}\"\n"));
        let expected = "expected \"\", or letters, digits, `-` and `_`, 1 to 32 of them";
        assert!(told.contains("mcp.a.prefix") && told.contains(expected), "{told}");
    }
}

#[test]
fn a_timeout_of_all_servers_is_a_default() {
    let timeouts = |text: &str| -> Vec<u64> {
        let servers = "[mcp.a]\ncommand = \"x\"\n[mcp.b]\ncommand = \"x\"\ntimeout_ms = 7000\n";
        load(&format!("{text}{servers}")).mcp.iter().map(|server| server.timeout.as_secs()).collect()
    };
    assert_eq!(timeouts(""), [30, 7]);
    assert_eq!(timeouts("[experimental]\nmcp_timeout = 60000  # 60 seconds (default 30s)\n"), [60, 7]);
    insta::assert_snapshot!(check("[experimental]\nmcp_timeout = 0\nmcp_timout = 1\n"), @"
    portcullis.toml:2: `experimental.mcp_timeout` is 0, expected 100 to 86400000
    portcullis.toml:3: `experimental.mcp_timout` is not a setting; did you mean `mcp_timeout`?
    ");
}

#[test]
fn the_format_of_a_webhook_is_known_by_its_host_and_its_url_is_not_shown() {
    let format = |keys: &str| {
        let config = load(&format!("[notify]\n{keys}"));
        let shown = config.shown()["notify"]["url"].to_string();
        assert!(!shown.contains("topic"), "{shown}");
        config.notify.webhook.map(|webhook| webhook.format)
    };
    assert_eq!(format(""), None);
    assert_eq!(format(r#"url = "https://ntfy.sh/topic""#), Some(NotifyFormat::Ntfy));
    assert_eq!(format(r#"url = "https://ntfy.example.com/topic""#), Some(NotifyFormat::Ntfy));
    assert_eq!(format(r#"url = "https://hooks.slack.com/services/topic""#), Some(NotifyFormat::Slack));
    assert_eq!(format(r#"url = "https://example.com/topic""#), Some(NotifyFormat::Json));
    assert_eq!(format("url = \"https://example.com/topic\"\nformat = \"slack\""), Some(NotifyFormat::Slack));
    assert_eq!(format("url = \"secret:NOTIFY\"\nformat = \"ntfy\""), Some(NotifyFormat::Ntfy));
    insta::assert_snapshot!(check("[notify]\nurl = \"ftp://topic\"\n"), @"portcullis.toml:2: `notify.url` is invalid, expected a URL like https://ntfy.sh/my-topic, or better secret:NAME");
}
