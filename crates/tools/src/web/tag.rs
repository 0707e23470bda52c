//! The HTML elements and attributes that matter for the conversion.

/// An element. Unknown ones are `Other`: the element is dropped, its text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Other,
    A,
    Article,
    Aside,
    Base,
    Block,
    Blockquote,
    Body,
    Br,
    Caption,
    Code,
    Dd,
    Del,
    Dl,
    Dropped,
    Dt,
    Em,
    Footer,
    Form,
    H1,
    H2,
    H3,
    H4,
    H5,
    H6,
    Head,
    Header,
    Hr,
    Img,
    Li,
    Main,
    Meta,
    Nav,
    Ol,
    P,
    Pre,
    Section,
    Strong,
    Svg,
    Table,
    TableSection,
    Td,
    Th,
    Title,
    Tr,
    Ul,
    Void,
}

impl Tag {
    pub(super) const COUNT: usize = Tag::Void as usize + 1;

    /// Returns the element with a name in lower case.
    pub(super) fn of(name: &[u8]) -> Tag {
        match name {
            b"a" => Tag::A,
            b"article" => Tag::Article,
            b"aside" => Tag::Aside,
            b"base" => Tag::Base,
            b"div" | b"figure" | b"figcaption" | b"details" | b"summary" | b"address" | b"fieldset"
            | b"hgroup" | b"center" | b"search" => Tag::Block,
            b"blockquote" => Tag::Blockquote,
            b"body" => Tag::Body,
            b"br" => Tag::Br,
            b"caption" => Tag::Caption,
            b"code" | b"kbd" | b"samp" | b"tt" => Tag::Code,
            b"dd" => Tag::Dd,
            b"del" | b"s" | b"strike" => Tag::Del,
            b"dl" => Tag::Dl,
            b"dt" => Tag::Dt,
            b"em" | b"i" => Tag::Em,
            b"footer" => Tag::Footer,
            b"form" => Tag::Form,
            b"h1" => Tag::H1,
            b"h2" => Tag::H2,
            b"h3" => Tag::H3,
            b"h4" => Tag::H4,
            b"h5" => Tag::H5,
            b"h6" => Tag::H6,
            b"head" => Tag::Head,
            b"header" => Tag::Header,
            b"hr" => Tag::Hr,
            b"img" => Tag::Img,
            b"li" => Tag::Li,
            b"main" => Tag::Main,
            b"meta" => Tag::Meta,
            b"nav" => Tag::Nav,
            b"ol" => Tag::Ol,
            b"p" => Tag::P,
            b"pre" | b"listing" => Tag::Pre,
            b"section" => Tag::Section,
            b"strong" | b"b" => Tag::Strong,
            b"svg" => Tag::Svg,
            b"table" => Tag::Table,
            b"thead" | b"tbody" | b"tfoot" => Tag::TableSection,
            b"td" => Tag::Td,
            b"th" => Tag::Th,
            b"title" => Tag::Title,
            b"tr" => Tag::Tr,
            b"ul" | b"menu" => Tag::Ul,
            b"script" | b"style" | b"noscript" | b"template" | b"math" | b"iframe" | b"object"
            | b"canvas" | b"select" | b"button" | b"textarea" | b"audio" | b"video" | b"dialog"
            | b"noframes" | b"noembed" => Tag::Dropped,
            b"area" | b"col" | b"embed" | b"input" | b"link" | b"param" | b"source" | b"track" | b"wbr" => {
                Tag::Void
            }
            _ => Tag::Other,
        }
    }

    /// Has no end tag.
    pub(super) fn is_void(self) -> bool {
        matches!(self, Tag::Void | Tag::Br | Tag::Hr | Tag::Img | Tag::Meta | Tag::Base)
    }

    /// Returns whether `/>` closes it (SVG and MathML).
    pub(super) fn is_foreign(self) -> bool {
        self == Tag::Svg
    }

    /// Returns whether it has visible content.
    pub(super) fn is_shown(self) -> bool {
        !matches!(self, Tag::Dropped | Tag::Svg | Tag::Title | Tag::Meta | Tag::Base | Tag::Void)
    }

    /// Returns whether it is a block element.
    pub(super) fn is_block(self) -> bool {
        !matches!(
            self,
            Tag::Other
                | Tag::A
                | Tag::Base
                | Tag::Br
                | Tag::Code
                | Tag::Del
                | Tag::Dropped
                | Tag::Em
                | Tag::Head
                | Tag::Img
                | Tag::Meta
                | Tag::Strong
                | Tag::Svg
                | Tag::Title
                | Tag::Void
        )
    }

    /// Returns whether its content cannot close a paragraph outside of it.
    pub(super) fn holds_paragraphs(self) -> bool {
        self != Tag::P && self.is_block()
    }

    pub(super) fn is_of_table(self) -> bool {
        matches!(self, Tag::Table | Tag::TableSection | Tag::Tr | Tag::Td | Tag::Th | Tag::Caption)
    }

    pub(super) fn heading(self) -> Option<usize> {
        [Tag::H1, Tag::H2, Tag::H3, Tag::H4, Tag::H5, Tag::H6]
            .iter()
            .position(|tag| *tag == self)
            .map(|at| at + 1)
    }
}

/// The attributes that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeUse {
    Nothing,
    Href,
    Src,
    Alt,
    Class,
    Id,
    Role,
    Start,
    MetaKey,
    MetaValue,
    Hidden,
    AriaHidden,
    Style,
}

impl AttributeUse {
    pub(super) fn of(name: &[u8]) -> AttributeUse {
        match name {
            b"href" => AttributeUse::Href,
            b"src" => AttributeUse::Src,
            b"alt" => AttributeUse::Alt,
            b"class" => AttributeUse::Class,
            b"id" => AttributeUse::Id,
            b"role" => AttributeUse::Role,
            b"start" => AttributeUse::Start,
            b"property" | b"name" => AttributeUse::MetaKey,
            b"content" => AttributeUse::MetaValue,
            b"hidden" => AttributeUse::Hidden,
            b"aria-hidden" => AttributeUse::AriaHidden,
            b"style" => AttributeUse::Style,
            _ => AttributeUse::Nothing,
        }
    }
}
