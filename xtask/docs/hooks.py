"""What the documentation site needs beyond mkdocs.yml.

- Pages at the root of the repository (SECURITY.md and others) are pages of the site, without copies.
- A link to any other file of the repository is checked, and shown as the file's name: the site stands alone.
- No page loads anything from a foreign host.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = ["SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
SHIM = "search-worker.js"
# Beside this file. Pages load them.
ASSETS = [SHIM, "site.css"]
# The theme's own address of a script that lets search run from file://; ours takes its place.
FOREIGN_SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ADDRESS = r"""["']?((?:https?:)?//[^"'\s>]+)"""
LOADS = re.compile(
    rf"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc={ADDRESS}"
    rf"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|dns-prefetch|icon))[^>]*\bhref={ADDRESS}"
)
CODE_BLOCK = re.compile(r"(^[ \t]*```.*?^[ \t]*```[ \t]*$)", re.M | re.S)
log = logging.getLogger("mkdocs.hooks.portcullis")


def on_files(files, config):
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name in ASSETS:
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(Path(__file__).with_name(name))))
    return files


def on_page_markdown(markdown, page, config, files):
    """Makes links that leave docs/ links of the site; code blocks and code spans stay as they are."""
    source = page.file.src_uri
    at = source if source in ROOT_PAGES else f"docs/{source}"
    # Text and code blocks take turns.
    parts = CODE_BLOCK.split(markdown)
    for index in range(0, len(parts), 2):
        parts[index] = LINK.sub(lambda match: resolved(match, at, source, files), parts[index])
    return "".join(parts)


def resolved(match, at, source, files):
    text, target = match.groups()
    if re.match(r"[a-z]+:|#|/", target):
        return match.group(0)
    path, hash_sign, anchor = target.partition("#")
    in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(at), path))
    in_site = in_repository.removeprefix("docs/")
    if files.get_file_from_path(in_site) is not None and (in_repository in ROOT_PAGES or in_repository != in_site):
        return f"[{text}]({posixpath.relpath(in_site, posixpath.dirname(source) or '.')}{hash_sign}{anchor})"
    if in_repository.startswith("../") or not (ROOT / in_repository).exists():
        log.warning("%s: link to `%s`, which is not a file of the repository", at, target)
    # A file that is not on the site: its name says where it is.
    plain = text.replace("`", "")
    return text if plain.endswith(posixpath.basename(in_repository)) else f"{text} (`{in_repository}`)"


def on_post_page(output, page, config):
    return output.replace(FOREIGN_SHIM, posixpath.relpath(f"assets/{SHIM}", posixpath.dirname(page.file.dest_uri) or "."))


def on_post_template(output, template_name, config):
    return output.replace(FOREIGN_SHIM, f"assets/{SHIM}")


def on_post_build(config):
    site = Path(config.site_dir)
    for page in sorted(site.rglob("*.html")):
        for match in LOADS.finditer(page.read_text()):
            log.warning("%s: loads `%s` from a foreign host", page.relative_to(site), match.group(1) or match.group(2))
    # The README is no page, and its links are checked all the same.
    readme = CODE_BLOCK.sub("", (ROOT / "README.md").read_text())
    for _, target in LINK.findall(readme):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", path) and not (ROOT / path).exists():
            log.warning("README.md: link to `%s`, which is not a file of the repository", target)
