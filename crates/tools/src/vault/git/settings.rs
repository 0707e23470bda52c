//! Allowlist of repository settings.
//!
//! Many git settings start programs, and new versions add more, so known harmless settings are listed and all others
//! refused. Settings that the caller overrides are harmless too.

/// Sections with only cosmetic settings, or that git itself does not read.
const SECTIONS: [&str; 16] = [
    "advice", "alias", "branch", "color", "column", "commit", "gui", "index", "init", "lfs", "pack", "pull",
    "rebase", "status", "tag", "user",
];

/// Single settings, in lower case; `*` is any remote name.
const KEYS: [&str; 50] = [
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.compression",
    "core.loosecompression",
    "core.bigfilethreshold",
    "core.trustctime",
    "core.checkstat",
    "core.protecthfs",
    "core.protectntfs",
    "core.abbrev",
    "core.fsync",
    "core.fsyncmethod",
    "core.sharedrepository",
    // Overridden.
    "core.hookspath",
    "core.fsmonitor",
    "core.untrackedcache",
    "core.askpass",
    "core.editor",
    "core.pager",
    "core.attributesfile",
    "core.excludesfile",
    "core.sshcommand",
    "sequence.editor",
    "submodule.recurse",
    "credential.helper",
    "extensions.objectformat",
    "extensions.refstorage",
    "fetch.prune",
    "fetch.parallel",
    "fetch.recursesubmodules",
    "gc.auto",
    "http.postbuffer",
    "log.date",
    "merge.ff",
    "merge.conflictstyle",
    "push.default",
    "push.autosetupremote",
    "remote.*.url",
    "remote.*.pushurl",
    "remote.*.fetch",
    "remote.*.tagopt",
];

/// Returns whether a setting is refused. Keys are as git prints them, with the section in lower case.
pub(in crate::vault) fn is_forbidden(key: &str) -> bool {
    if key.is_empty() {
        return false;
    }
    let (Some((section, _)), Some((rest, name))) = (key.split_once('.'), key.rsplit_once('.')) else {
        return true;
    };
    let (section, name) = (section.to_ascii_lowercase(), name.to_ascii_lowercase());
    if SECTIONS.contains(&section.as_str()) {
        return false;
    }
    let has_name_between = rest.len() > section.len();
    let general = if has_name_between { format!("{section}.*.{name}") } else { format!("{section}.{name}") };
    !KEYS.contains(&general.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every setting of git 2.47 that starts a program, includes another file, or redirects elsewhere.
    const DANGEROUS: [&str; 34] = [
        "core.alternaterefscommand",
        "core.gitproxy",
        "core.worktree",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "filter.lfs.process",
        "merge.x.driver",
        "diff.external",
        "diff.x.command",
        "diff.x.textconv",
        "gpg.program",
        "gpg.ssh.program",
        "gpg.ssh.defaultkeycommand",
        "include.path",
        "includeif.gitdir:/.path",
        "url.ext::sh.insteadof",
        "url./x/.pushinsteadof",
        "remote.origin.uploadpack",
        "remote.origin.receivepack",
        "remote.origin.vcs",
        "remote.origin.proxy",
        "remote.origin.promisor",
        "submodule.x.update",
        "credential.https://example.com.helper",
        "http.proxy",
        "http.https://example.com/.followredirects",
        "http.sslverify",
        "http.cookiefile",
        "protocol.ext.allow",
        "extensions.worktreeconfig",
        "extensions.partialclone",
        "trailer.x.command",
        "uploadpack.packobjectshook",
    ];

    #[test]
    fn what_could_start_a_program_is_refused() {
        let missed: Vec<&str> = DANGEROUS.into_iter().filter(|key| !is_forbidden(key)).collect();
        assert_eq!(missed, Vec::<&str>::new());
        assert!(is_forbidden("newsection.somecommand") && is_forbidden("x"));
        // Control: a denylist would miss some.
        let weak = |key: &&str| !["core.sshcommand", "filter.x.clean", "diff.external"].contains(key);
        assert!(DANGEROUS.iter().any(weak));
    }

    #[test]
    fn an_ordinary_clone_is_not() {
        for key in [
            "core.repositoryformatversion",
            "core.filemode",
            "core.bare",
            "core.logallrefupdates",
            "remote.origin.url",
            "remote.origin.fetch",
            "remote.my.remote.url",
            "branch.main.remote",
            "branch.main.merge",
            "branch.feature.x.vscode-merge-base",
            "user.name",
            "user.email",
            "pull.rebase",
            "lfs.repositoryformatversion",
            "core.hookspath",
        ] {
            assert!(!is_forbidden(key), "{key}");
        }
    }
}
