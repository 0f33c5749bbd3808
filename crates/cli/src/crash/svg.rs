//! An SVG in the making, from a few shapes. Nothing is told by its hue alone, and colours are for light and dark pages.

use std::fmt::Write;

/// The style sheet. Colours are for light, then for dark; the picture has a ground of its own.
pub const STYLE: &str = "\
.middle{text-anchor:middle}.upright{text-anchor:end}
text{font:12px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}
.ground{fill:#fff;stroke:#d0d7de}.act{fill:#f3f5f8}.lane{stroke:#d0d7de}
.big{font-size:15px;font-weight:600}.bold{font-weight:600}.quiet{fill:#59636e}.small{font-size:11px}
.box{stroke-width:1.5}.mono{font:12px ui-monospace,'DejaVu Sans Mono',monospace}
.durable{fill:#57606a;stroke:#57606a}text.in-durable{fill:#fff}
.kept{fill:#c9ecdf;stroke:#00724f}.lost{fill:#fff;stroke:#c2410c;stroke-dasharray:4 3}
.torn{fill:#fff;stroke:#9a6700}.half{fill:#f2cf7c}.broken{fill:#f1dcec;stroke:#9c3587;stroke-width:3}
.pending{fill:#fff;stroke:#59636e;stroke-dasharray:1 3}
.sign{stroke-width:2;fill:none;stroke-dasharray:none;stroke-linecap:round}.disc{fill:#fff;stroke-dasharray:none}
.tail{stroke:#8c959f;stroke-width:2;fill:none}.wall{fill:#0550ae}text.wall-label{fill:#0550ae;font-size:11px}
.reads{fill:#e7e0fb;stroke:#6639ba}.was-read{fill:#6639ba}text.read{fill:#6639ba}
.crash{stroke:#c2410c;stroke-width:4;fill:none;stroke-linejoin:round}text.crash-label{fill:#c2410c;font-weight:700}
.panel{fill:#f3f5f8;stroke:#d0d7de}.chip{fill:#fff;stroke:#59636e}.bad{fill:#c2410c;font-weight:700}
.good{fill:#00724f;font-weight:700}.arrow{stroke:#59636e;stroke-width:2;fill:none}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117;stroke:#3d444d}.act{fill:#161c24}
.lane{stroke:#3d444d}.quiet{fill:#9198a1}.durable{fill:#8b949e;stroke:#8b949e}text.in-durable{fill:#0d1117}
.kept{fill:#0f4435;stroke:#3fcf9c}.lost{fill:#0d1117;stroke:#ff8f5c}.torn{fill:#0d1117;stroke:#e3b341}
.half{fill:#6b5011}.broken{fill:#45213e;stroke:#e58ad2}.pending{fill:#0d1117;stroke:#9198a1}.disc{fill:#0d1117}
.tail{stroke:#7d8590}.wall{fill:#58a6ff}text.wall-label{fill:#58a6ff}.reads{fill:#2d2350;stroke:#b69af5}
.was-read{fill:#b69af5}text.read{fill:#b69af5}.crash{stroke:#ff8f5c}text.crash-label{fill:#ff8f5c}
.panel{fill:#161c24;stroke:#3d444d}.chip{fill:#0d1117;stroke:#9198a1}.bad{fill:#ff8f5c}.good{fill:#3fcf9c}
.arrow{stroke:#9198a1}}";

/// The elements so far.
#[derive(Default)]
pub struct Svg(pub String);

impl Svg {
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    pub fn rect(&mut self, class: &str, (x, y): (i32, i32), (width, height): (i32, i32), round: i32) {
        let shape = format_args!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"");
        self.put(format_args!("<rect class=\"{class}\" {shape}/>"));
    }

    pub fn circle(&mut self, class: &str, (x, y): (i32, i32), radius: i32) {
        self.put(format_args!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
    }

    /// A text whose line begins at this place.
    pub fn text(&mut self, class: &str, (x, y): (i32, i32), text: &str) {
        self.put(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text)));
    }

    /// A text around this place.
    pub fn middle(&mut self, class: &str, at: (i32, i32), text: &str) {
        self.text(&format!("middle {class}"), at, text);
    }

    /// A text that is read upwards and ends at this place.
    pub fn upright(&mut self, class: &str, (x, y): (i32, i32), text: &str) {
        let turned = format_args!("transform=\"translate({x} {y}) rotate(-90)\"");
        self.put(format_args!("<text class=\"upright {class}\" {turned}>{}</text>", escaped(text)));
    }

    pub fn path(&mut self, class: &str, path: std::fmt::Arguments<'_>) {
        self.put(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// Elements that show this text where a mouse rests on them.
    pub fn titled(&mut self, title: &str, body: impl FnOnce(&mut Svg)) {
        self.put(format_args!("<g><title>{}</title>", escaped(title)));
        body(self);
        self.put(format_args!("</g>"));
    }
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What a text takes at most, whichever font there is.
pub fn width_of(text: &str) -> i32 {
    (text.chars().count() as i32 * 37 + 4) / 5
}

/// At most so many characters of a text.
pub fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.into(),
    }
}
