//! Invented scripts: one that is approved, one that changed since, one that an agent proposed.

use crate::data::{HOSTILE, ago};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use portcullis_ops::desk::*;
use portcullis_ops::{Actor, Problem};
use serde_json::json;

const REPORT: &str = "# @description Sums up yesterday's tickets and writes them to a note.\n# @author marta\n# @version 1.2\n# @secrets TICKETS_TOKEN\n# @hosts tickets.example\n# @tools memory_write\n\n\ndef lines(tickets):\n    \"\"\"One line for each ticket.\"\"\"\n    return [\"%s: %s\" % (t[\"id\"], t[\"title\"]) for t in tickets]\n\n\ndef main():\n    answer = http.get(\n        \"https://tickets.example/api/tickets?since=1d\",\n        headers = {\"Authorization\": secrets.get(\"TICKETS_TOKEN\")},\n    )\n    found = json.decode(answer.body)\n    if len(found) == 0:\n        return \"nothing new\"\n    tools.call(\"memory_write\", text = \"\\n\".join(lines(found)))\n    return len(found)  # integers stay integers: 42\n";

pub(crate) struct DemoScripts;

fn capabilities(secrets: &[&str], hosts: &[&str], tools: &[&str]) -> ScriptGrants {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    ScriptGrants { secrets: texts(secrets), hosts: texts(hosts), tools: texts(tools) }
}

fn brief(name: &str, state: &str) -> ScriptBrief {
    let had = capabilities(&["TICKETS_TOKEN"], &["tickets.example"], &[]);
    ScriptBrief {
        name: name.into(),
        state: state.into(),
        sha256: format!("{:0<64}", HEXLOWER.encode(name.as_bytes())),
        seen: usize::from(state != "pending"),
        description: Some(if name == "cleanup.star" {
            HOSTILE.into()
        } else {
            "Sums up yesterday's tickets and writes them to a note.".into()
        }),
        author: Some("marta".into()),
        version: Some("1.2".into()),
        wanted: capabilities(&["TICKETS_TOKEN"], &["tickets.example"], &["memory_write"]),
        granted: if state == "pending" { ScriptGrants::default() } else { had },
        proposed_by: (state == "pending").then(|| "research".into()),
        decided_by: (state != "pending").then(|| "marta".into()),
        decided_at: (state != "pending").then(|| ago(60 * 24 * 5)),
        expires: None,
        reason: None,
    }
}

fn all() -> Vec<ScriptBrief> {
    vec![brief("weekly.star", "approved"), brief("report.star", "changed"), brief("cleanup.star", "pending")]
}

fn ready<'a, T: Send + 'a>(answer: Result<T, Problem>) -> DeskFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn find(name: &str) -> Result<ScriptBrief, Problem> {
    all().into_iter().find(|one| one.name == name).ok_or_else(|| Problem::not_found("no such script"))
}

impl ScriptDesk for DemoScripts {
    fn list(&self) -> DeskFuture<'_, ScriptList> {
        ready(Ok(ScriptList { scripts: all() }))
    }

    fn detail(&self, name: String) -> DeskFuture<'_, ScriptDetail> {
        ready(find(&name).map(|brief| {
            let changed = brief.state == "changed";
            let before = REPORT
                .replace("# @tools memory_write\n", "")
                .replace("    tools.call(\"memory_write\", text = \"\\n\".join(lines(found)))\n", "")
                .replace("since=1d", "since=7d");
            let text =
                if brief.state == "pending" { format!("{REPORT}# {HOSTILE}\n") } else { REPORT.into() };
            ScriptDetail {
                change: changed.then(|| TextChange {
                    before: Some(before),
                    after: Some(text.clone()),
                    lines: Vec::new(),
                }),
                capabilities_added: if changed {
                    capabilities(&[], &[], &["memory_write"])
                } else {
                    ScriptGrants::default()
                },
                capabilities_removed: ScriptGrants::default(),
                problem: None,
                versions: vec![
                    ScriptVersion {
                        sha256: brief.sha256.clone(),
                        at: ago(30),
                        by: "marta".into(),
                        state: brief.state.clone(),
                    },
                    ScriptVersion {
                        sha256: "ab12".repeat(16),
                        at: ago(60 * 24 * 5),
                        by: "marta".into(),
                        state: "approved".into(),
                    },
                ],
                runs: vec![
                    ScriptRun {
                        at: ago(60),
                        sha256: "ab12".repeat(16),
                        client: "laptop".into(),
                        duration_us: 341_000,
                        outcome: "ok".into(),
                    },
                    ScriptRun {
                        at: ago(60 * 24),
                        sha256: "ab12".repeat(16),
                        client: "laptop".into(),
                        duration_us: 2_000_000,
                        outcome: "timeout".into(),
                    },
                ],
                text,
                brief,
            }
        }))
    }

    fn version(&self, _: String, sha256: String) -> DeskFuture<'_, ScriptText> {
        ready(Ok(ScriptText { sha256, text: REPORT.replace("1.2", "1.1") }))
    }

    fn approve(&self, name: String, _: ApproveScript, _: Actor) -> DeskFuture<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn reject(&self, name: String, _: RejectScript, _: Actor) -> DeskFuture<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn save(&self, name: String, _: SaveScript, _: Actor) -> DeskFuture<'_, ScriptBrief> {
        ready(if name.ends_with(".star") && !name.contains('/') {
            Ok(brief(&name, "pending"))
        } else {
            Err(Problem::invalid("invalid script name: expected a name like report.star"))
        })
    }

    fn restore(&self, name: String, _: RestoreScript, _: Actor) -> DeskFuture<'_, ScriptBrief> {
        ready(find(&name))
    }

    fn remove(&self, name: String, _: Actor) -> DeskFuture<'_, ActionReceipt> {
        ready(Ok(ActionReceipt { said: format!("Removed script `{name}`.") }))
    }

    fn dry_run(&self, run: DryRun, _: Actor) -> DeskFuture<'_, DryRunResult> {
        let value = json!({ "lines": run.text.lines().count() });
        ready(Ok(DryRunResult {
            value: Some(value),
            printed: format!("ran at {}\n", Timestamp::UNIX_EPOCH),
            problem: None,
            duration_us: 4_321,
        }))
    }
}
