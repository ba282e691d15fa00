"""Makes the manual pages of the packages.

    man_pages.py BINARY FOLDER

FOLDER/oncekey.1       docs/oncekey.1, with the options of every command as BINARY's --help lists them
FOLDER/oncekey.toml.5  docs/CONFIG.md

Only the Markdown that docs/CONFIG.md uses is understood: headings, paragraphs, lists, tables, code blocks, `code`,
**bold** and links.
"""

import pathlib
import re
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[1]


def escaped(text):
    """Text as roff reads it: no line may begin with a control character."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def inline(text):
    """One paragraph of Markdown as roff."""
    parts = re.split(r"(`[^`]*`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]*\))", text)
    out = []
    for part in parts:
        if part.startswith("`"):
            out.append("\\fB" + escaped(part[1:-1]) + "\\fR")
        elif part.startswith("**"):
            out.append("\\fB" + inline(part[2:-2]) + "\\fR")
        elif part.startswith("[") and "](" in part:
            words, target = part[1:-1].split("](", 1)
            file = re.sub(r"#.*", "", target)
            said = inline(words)
            # A link inside this page needs no name of a file; one whose words are the name has it already.
            name = pathlib.Path(file).name
            out.append(said if not file or name in words else f"{said} ({escaped(name)})")
        else:
            out.append(escaped(part))
    joined = "".join(out)
    return re.sub(r"^([.'])", r"\\&\1", joined)


def cells(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def table(rows):
    """Every row as an entry: wide tables of sentences do not fit a terminal."""
    head, body = cells(rows[0]), [cells(row) for row in rows[2:]]
    out = []
    for row in body:
        out.append(".TP\n" + inline(row[0]))
        if head[0] == "setting":
            out.append(f"(default: {inline(row[1])})\n.br\n{inline(row[2])}")
        else:
            out.append("\n.br\n".join(f"{inline(name)}: {inline(cell)}" for name, cell in zip(head[1:], row[1:]) if cell))
    return "\n".join(out)


def blocks(text):
    """Markdown, cut at blank lines; a code block is one block."""
    block, in_code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            block.append(line)
            if not in_code:
                yield block
                block = []
        elif in_code or line.strip():
            if not in_code and line.startswith("#") and block:
                yield block
                block = []
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def roff(markdown):
    out = []
    for block in blocks(markdown):
        first = block[0]
        if first.startswith("```"):
            code = escaped("\n".join(block[1:-1]))
            out.append(f".PP\n.in +4n\n.EX\n{code}\n.EE\n.in")
        elif first.startswith("# "):
            continue  # the title of the page
        elif first.startswith("## "):
            out.append(".SH " + escaped(first[3:]).upper())
        elif first.startswith("### "):
            out.append(".SS " + escaped(first[4:]))
        elif first.startswith("|"):
            out.append(table(block))
        elif re.match(r"- |\d+\. ", first):
            items = re.split(r"\n(?=- |\d+\. )", "\n".join(block))
            for item in items:
                mark, words = re.match(r"(- |\d+\. )(.*)", item, re.DOTALL).groups()
                bullet = "\\(bu" if mark == "- " else mark.strip()
                out.append(f".IP {bullet} 4\n" + inline(re.sub(r"\s+", " ", words)))
        else:
            out.append(".PP\n" + inline(re.sub(r"\s+", " ", " ".join(block))))
    return "\n".join(out) + "\n"


def configuration_page():
    text = (PROJECT / "docs" / "CONFIG.md").read_text()
    return ('.TH ONCEKEY.TOML 5 "" "Oncekey" "File Formats"\n'
            ".SH NAME\noncekey.toml \\- configuration of the Oncekey idempotency gateway\n"
            ".SH DESCRIPTION\n" + roff(text) +
            ".SH SEE ALSO\n.BR oncekey (1)\n.PP\n"
            "The documents that are named in capitals, such as LIMITS.md, are in /usr/share/doc/oncekey/docs.\n")


def help_of(binary, words):
    return subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


MEANING_COLUMN = 30  # where --help begins to say what an option is for


def sections_of_help(text):
    """{"Options": [("--config FILE", "TOML file"), ...], "Positionals": ..., "Subcommands": ...}"""
    sections, entries = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            entries = sections.setdefault(line.rstrip(":"), [])
        elif entries is not None and re.match(r"  \S", line):
            # A long name has its meaning on the next line.
            cut = MEANING_COLUMN if line[MEANING_COLUMN - 1:MEANING_COLUMN] == " " else len(line)
            term = re.sub(r" (REQUIRED|Excludes: \S+)(?= |$)", "", line[:cut].strip())
            if not term.startswith("-"):
                term = term.split()[0]  # an argument, without its type
            entries.append([term, line[cut:].strip()])
        elif entries and line.strip():
            entries[-1][1] = (entries[-1][1] + " " + line.strip()).strip()
    return sections


def options_section(binary):
    out, pending = [".SH OPTIONS"], [()]
    while pending:
        words = pending.pop(0)
        sections = sections_of_help(help_of(binary, words))
        names = [term.split()[0] for term, _ in sections.get("Subcommands", [])]
        if words == ():
            names = [name for name in names if name not in ("help", "version")]
        pending = [(*words, name) for name in names] + pending
        entries = [entry for kind in ("Positionals", "Options") for entry in sections.get(kind, [])
                   if "--help" not in entry[0]]
        if not entries:
            continue
        out.append(".SS " + escaped(" ".join(["oncekey", *words])))
        for term, meaning in entries:
            out.append(".TP\n\\fB" + escaped(term) + "\\fR\n" + inline(meaning))
    return "\n".join(out) + "\n"


def command_page(binary):
    page = (PROJECT / "docs" / "oncekey.1").read_text()
    before, after = page.split(".SH SIGNALS", 1)
    page = before + options_section(binary) + ".SH SIGNALS" + after
    return page.replace("/usr/local/share/doc/oncekey", "/usr/share/doc/oncekey")


def main(binary, folder):
    folder = pathlib.Path(folder)
    (folder / "oncekey.1").write_text(command_page(binary))
    (folder / "oncekey.toml.5").write_text(configuration_page())


if __name__ == "__main__":
    main(*sys.argv[1:])
