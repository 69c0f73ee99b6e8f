//! What a page of Markdown has for the shell, and where its links lead.

use std::{fs, path::Path};

#[derive(Debug)]
pub(super) struct Page {
    /// Relative to the root of the checkout.
    pub(super) path: String,
    pub(super) blocks: Vec<Block>,
    /// Targets of links with the lines they are in.
    links: Vec<(usize, String)>,
    /// Marks of the page that cannot be read, with their lines.
    pub(super) wrong: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its first command, from 1.
    pub(super) line: usize,
    pub(super) commands: String,
    /// The reason for which the block is not run, if it is marked.
    pub(super) not_run: Option<String>,
}

const MARK: &str = "<!-- not run: ";

impl Page {
    pub(super) fn read(path: String, text: &str) -> Self {
        let mut page = Self { path, blocks: Vec::new(), links: Vec::new(), wrong: Vec::new() };
        let mut lines = text.lines().enumerate();
        let mut mark = None;
        while let Some((number, line)) = lines.next() {
            let trimmed = line.trim_start();
            if let Some(language) = trimmed.strip_prefix("```") {
                let indent = line.len() - trimmed.len();
                let inside = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
                // A block in a list is as far to the right as its fence.
                let inside: Vec<_> = inside.map(|(_, line)| line.get(indent..).unwrap_or("")).collect();
                if ["sh", "bash"].contains(&language.trim()) {
                    let commands = inside.iter().map(|line| format!("{line}\n")).collect();
                    page.blocks.push(Block { line: number + 2, commands, not_run: mark.take() });
                }
                mark = None;
            } else if let Some(reason) = trimmed.strip_prefix(MARK) {
                // A mark that goes on in the next line would be lost there, and its block would run.
                match reason.trim_end().strip_suffix("-->") {
                    Some(reason) => mark = Some(reason.trim_end().to_owned()),
                    None => page.wrong.push(format!("{}:{}: a mark must be one line", page.path, number + 1)),
                }
            } else if !trimmed.is_empty() {
                mark = None;
                page.links.extend(links(line).map(|link| (number + 1, link)));
            }
        }
        page
    }

    /// Whether there is a block to run.
    pub(super) fn is_run(&self) -> bool {
        self.runs("")
    }

    /// Whether one of the blocks that are run contains the text `command`.
    pub(super) fn runs(&self, command: &str) -> bool {
        self.blocks.iter().any(|block| block.not_run.is_none() && block.commands.contains(command))
    }

    /// Lines of blocks that are not run, and why.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (usize, &str)> {
        self.blocks.iter().filter_map(|block| Some((block.line, block.not_run.as_deref()?)))
    }

    /// Links to files and headings of the checkout that are not there.
    pub(super) fn dead_links(&self, root: &Path) -> Vec<String> {
        let page = root.join(&self.path);
        let folder = page.parent().unwrap_or(root);
        let dead = |target: &str| {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { folder.join(file) };
            !target.contains("://") && (!file.exists() || !heading.is_empty() && !has_heading(&file, heading))
        };
        let dead = self.links.iter().filter(|(_, target)| dead(target));
        dead.map(|(line, target)| format!("{}:{line}: nothing is at {target}", self.path)).collect()
    }
}

/// Whether a page has the heading that `#part` of a link names. Files that are no pages have any.
fn has_heading(file: &Path, part: &str) -> bool {
    if file.extension().is_none_or(|kind| kind != "md") {
        return true;
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == part)
}

/// What a heading is called in links.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Targets of `[text](target)`, outside of code.
fn links(line: &str) -> impl Iterator<Item = String> {
    let prose: String =
        line.split('`').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part).collect();
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let target = prose[at + 2..].split([')', ' ']).next().unwrap_or_default();
        found.push(target.to_owned());
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Page\n\n```sh\nnaa demo\n```\n\n<!-- not run: another machine -->\n```sh\nssh there\n```\n\
                        <!-- not run: forgotten -->\ntext with [a link](there.md#part) and `[no](link)`\n\n\
                        - list\n  ```bash\n  one\n    two\n  ```\n```text\nno command\n```\n";

    #[test]
    fn blocks_are_found_with_their_marks() {
        let page = Page::read("docs/page.md".into(), TEXT);
        let block = |line, commands: &str, not_run: Option<&str>| Block {
            line,
            commands: commands.into(),
            not_run: not_run.map(str::to_owned),
        };
        let expected = [
            block(4, "naa demo\n", None),
            block(9, "ssh there\n", Some("another machine")),
            block(16, "one\n  two\n", None),
        ];
        assert_eq!(page.blocks, expected);
        assert!(page.is_run());
        assert!(page.runs("naa demo") && !page.runs("ssh there"));
        assert_eq!(page.left_out().collect::<Vec<_>>(), [(9, "another machine")]);
    }

    #[test]
    fn a_mark_of_two_lines_is_refused() {
        let page =
            Page::read("a.md".into(), "<!-- not run: needs\nanother machine -->\n```sh\nrm -r /\n```\n");
        assert_eq!(page.wrong, ["a.md:1: a mark must be one line"]);
    }

    #[test]
    fn links_outside_of_code_must_lead_somewhere() {
        let page = Page::read("docs/page.md".into(), TEXT);
        let dead = page.dead_links(Path::new("/nonexistent"));
        assert_eq!(dead, ["docs/page.md:12: nothing is at there.md#part"]);
        let page = Page::read("a.md".into(), "[x](https://example.org)");
        assert!(page.dead_links(Path::new("/nonexistent")).is_empty());
        assert_eq!(anchor("## What `naa serve` is, and why"), "what-naa-serve-is-and-why");
    }
}
