//! Pages and their Markdown.

use super::super::{ConversionBudget, of_html};
use portcullis_egress::Url;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) fn budget() -> ConversionBudget {
    ConversionBudget { until: Instant::now() + Duration::from_secs(60), given_up: Arc::default() }
}

fn shown(html: &str) -> String {
    of_html(html, &Url::parse("https://site.test/docs/page").unwrap(), &budget()).content
}

#[test]
fn blocks_and_spans() {
    insta::assert_snapshot!(shown(
        "<h1>Head <em>ing</em></h1><p>One\n  two<br>three <b> bold </b>and <i>it</i>, <code>a `b`</code> <s>old</s></p>\
         <hr><blockquote><p>Said<p>twice</blockquote><h3>Third</h3>\
         <p><a href='../a b?x=(1)'>up</a> <a href='#x'>here</a> <a href='javascript:x'>no</a> <a href='//o.test/'>other</a> \
         <a href='mailto:a@b.test'>mail</a> <a href='/y'></a><img src=i.png alt='A picture'><img src=j.png>\
         <img src='data:x' alt='inline'></p>after"
    ), @r##"
    # Head *ing*

    One two
    three **bold** and *it*, `` a `b` `` ~~old~~

    ---

    > Said
    >
    > twice

    ### Third

    [up](https://site.test/a%20b?x=%281%29) here no [other](https://o.test/) [mail](mailto:a@b.test) ![A picture](https://site.test/docs/i.png)inline

    after
    "##);
}

#[test]
fn lists_nest() {
    insta::assert_snapshot!(shown(
        "<ul><li>one<li>two<ul><li>two a<li>two b<ol start=3><li>x<li>y</ol></ul><li><p>three</p><p>more of it</p></ul>\
         <ol><li>first</li><li>second<pre>code\n  here</pre></li></ol><dl><dt>Term<dd>What it is<dt>Other<dd>That</dl>"
    ), @r##"
    - one
    - two
      - two a
      - two b
        3. x
        4. y
    - three

      more of it

    1. first
    2. second

       ```
       code
         here
       ```

    **Term**

    : What it is

    **Other**

    : That
    "##);
}

#[test]
fn code_keeps_its_language_and_shape() {
    insta::assert_snapshot!(shown(
        "<pre><code class='hljs language-rust'>fn main() {\n    println!(&quot;&lt;hi&gt;&quot;);\n}\n</code></pre>\
         <pre class='brush: x'>plain ``` ticks</pre><pre>\n\nlines\n</pre><div class=highlight><pre class=lang-sh>$ ls<br>a</pre></div>"
    ), @r##"
    ```rust
    fn main() {
        println!("<hi>");
    }
    ```

    ````
    plain ``` ticks
    ````

    ```

    lines
    ```

    ```sh
    $ ls
    a
    ```
    "##);
}

#[test]
fn tables_of_data_are_tables() {
    insta::assert_snapshot!(shown(
        "<table><caption>Sizes</caption><tr><th>Name<th>Size<tr><td>a|b<td>1 <b>kB</b><tr><td>c</table>\
         <table><tr><td>x<td>y<tr><td>1<td>2</table>\
         <table><tr><td><h2>Layout</h2><p>with a paragraph</td><td><table><tr><td>in<td>ner<tr><td>1<td>2</table></td></tr></table>"
    ), @r##"
    Sizes

    | Name | Size |
    |---|---|
    | a\|b | 1 **kB** |
    | c | |

    | | |
    |---|---|
    | x | y |
    | 1 | 2 |

    ## Layout

    with a paragraph

    | | |
    |---|---|
    | in | ner |
    | 1 | 2 |
    "##);
}

#[test]
fn the_main_part_is_found() {
    let words =
        "A sentence of the article that goes on for a while, with commas, and says something. ".repeat(3);
    let menu: String = (0..20).map(|n| format!("<li><a href=/{n}>Menu entry {n}</a>")).collect();
    let around = |main: &str| {
        format!(
            "<title>News</title><header><ul>{menu}</ul></header><nav>{menu}</nav>{main}<aside>Aside: {words}</aside>\
             <div class='cookie-banner'>We use cookies</div><footer>Imprint {menu}</footer>"
        )
    };
    for main in [
        format!("<main><h1>Title</h1><p>{words}</p></main>"),
        format!("<article><h1>Title</h1><p>{words}</p></article>"),
        format!("<div role=main><h1>Title</h1><p>{words}</p></div>"),
        format!("<div><div><h1>Title</h1><p>{words}</p><p>{words}</p></div></div>"),
        format!(
            "<div class=page><section><h1>Title</h1><p>{words}</section><section><p>{words}</section></div>"
        ),
    ] {
        let text = shown(&around(&main));
        assert!(text.contains("# Title") && text.contains("A sentence of the article"), "{main}: {text}");
        for noise in ["Menu entry", "Imprint", "cookies", "Aside"] {
            assert!(!text.contains(noise), "{noise} in {text}");
        }
    }
    // A page of only links is kept.
    let text = shown(&format!("<title>Index</title><nav>{menu}</nav>"));
    assert!(text.starts_with("# Index") && text.contains("[Menu entry 19](https://site.test/19)"), "{text}");
}

#[test]
fn addresses_begin_where_the_page_says() {
    assert_eq!(shown("<base href='/other/'><a href=x>y</a>"), "[y](https://site.test/other/x)");
    assert_eq!(shown("<meta property='og:title' content='Social'><p>text"), "# Social\n\ntext");
    assert_eq!(shown("<svg><title>icon</title></svg><title> A\n b </title><p>text"), "# A b\n\ntext");
}

#[test]
fn broken_markup_is_read_as_far_as_it_goes() {
    for (html, text) in [
        ("<p>a<p>b<div>c", "a\n\nb\n\nc"),
        ("a</p></b></div>b", "ab"),
        ("<b>a<p>b</b>c", "a\n\nbc"),
        ("<script>if (a < b) '<p>'</script>x<style>p {}</style>y<noscript>z</noscript>", "xy"),
        ("<button>b</button><select><option>o</select>x", "x"),
        ("&lt;p&gt; &amp;amp; &nbsp; &eacute; &#x41; &unknown; &", "<p> &amp; é A &unknown; &"),
        ("<textarea><p>in</textarea><iframe><p>in</iframe>out", "out"),
        (
            "<a href=x>one <a href=y>two</a>",
            "[one](https://site.test/docs/x) [two](https://site.test/docs/y)",
        ),
        ("<li>loose", "- loose"),
        ("<td>cell", "cell"),
        ("", ""),
        ("<", "<"),
        ("<!--", ""),
    ] {
        assert_eq!(shown(html), text, "{html}");
    }
}
