"""Documents for people: no text of a user can leave its place in them."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from noisychannel.pages import document, embedded_json, escape


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_embedded_data_comes_back_and_cannot_end_its_element(data: object) -> None:
    element = embedded_json("data", data)
    opening, text, closing = re.fullmatch(r"(<script[^>]*>)(.*)(</script>)", element, re.DOTALL).groups()  # type: ignore[union-attr]
    assert json.loads(text) == data
    assert "<" not in text
    assert (opening, closing) == ('<script type="application/json" id="data">', "</script>")


@given(st.text())
def test_escaped_text_opens_no_tag_and_ends_no_attribute(text: str) -> None:
    assert not set(escape(text)) & set("<>\"'")


def test_a_document_needs_nothing_from_outside() -> None:
    page = document("a < b", "<p>body</p>", scripts=("1;",))
    assert "<title>a &lt; b</title>" in page
    assert page.index("body") < page.index("1;")
    assert not re.search(r"(src|href)\s*=|@import|url\(", page)
