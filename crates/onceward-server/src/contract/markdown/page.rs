//! A Markdown page in the making.

use super::super::words::line;

/// Blocks of Markdown, with a blank line between them.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<String>);

impl Page {
    pub(super) fn title(&mut self, text: &str) {
        self.paragraph(format!("# {}", line(text)));
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.paragraph(format!("## {text}"));
    }

    pub(super) fn subheading(&mut self, text: &str) {
        self.paragraph(format!("### {text}"));
    }

    pub(super) fn paragraph(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// An example of HTTP. The text cannot end its block.
    pub(super) fn http(&mut self, text: &str) {
        self.paragraph(format!("```http\n{}\n```", text.replace("```", "` ` `")));
    }

    /// A list; nothing if there are no items.
    pub(super) fn items(&mut self, items: &[String]) {
        if !items.is_empty() {
            let items: Vec<_> = items.iter().map(|item| format!("- {item}")).collect();
            self.paragraph(items.join("\n"));
        }
    }

    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) {
        let row = |cells: &[&str]| format!("| {} |", cells.join(" | "));
        let mut lines = vec![row(&head), row(&[":--"; N])];
        lines.extend(rows.iter().map(|cells| row(&cells.each_ref().map(String::as_str))));
        self.paragraph(lines.join("\n"));
    }

    pub(super) fn finish(self) -> String {
        self.0.join("\n\n") + "\n"
    }
}
