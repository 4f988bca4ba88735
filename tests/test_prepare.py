"""From files to vocabularies and corpora: what each model reads and writes, what is counted, and in how much memory."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel.data.augment import AugmentConfig
from noisychannel.data.codec import Codec
from noisychannel.data.corpus import Sequences
from noisychannel.data.encoding import Counts
from noisychannel.data.prepare import DataConfig, DataSource, Prepared, open_corpus, prepare
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.ids import EOS, UNK
from noisychannel.models.registry import ROLES, Role
from noisychannel.text import TextConfig

Table = list[list[str]]


class Workshop:
    """A directory for files, and one for what is prepared from them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> list[str]:
        file = self.path / name
        file.write_text(text, encoding="utf-8")
        return [str(file)]

    def config(self, train: str, dev: str | None = None, unpaired: str | None = None, **more: Any) -> DataConfig:
        return DataConfig(
            train=self.write("train.tsv", train),
            dev=self.write("dev.tsv", train if dev is None else dev),
            unpaired=[] if unpaired is None else self.write("unpaired.txt", unpaired),
            **more,
        )

    def prepare_groups(self, *args: Any, **more: Any) -> dict[str, Prepared]:
        return prepare(self.config(*args, **more), lambda group: self.path / "prepared" / group)

    def prepare(self, *args: Any, **more: Any) -> Prepared:
        (prepared,) = self.prepare_groups(*args, **more).values()
        return prepared

    def refusal(self, *args: Any, **more: Any) -> str:
        """What prepare complains of; whether it cleans up is another question, asked below."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            complaint = self._refusal(*args, **more)
            gc.collect()
        return complaint

    def files_left_open(self, *args: Any, **more: Any) -> list[str]:
        """What the interpreter complains of after prepare has failed."""
        gc.collect()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._refusal(*args, **more)
            gc.collect()
        return [str(warning.message) for warning in caught]

    def _refusal(self, *args: Any, **more: Any) -> str:
        with pytest.raises(BadInputError) as caught:
            self.prepare_groups(*args, **more)
        return str(caught.value)


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def named(codec: Codec, sequences: Sequences | None) -> Table:
    """Sequences with the name of every id."""
    assert sequences is not None
    return [[codec.names[i] for i in sequences[n]] for n in range(len(sequences.starts) - 1)]


def direct(prepared: Prepared, split: Any = "train") -> tuple[Table, Table]:
    corpus = open_corpus(prepared.directory, "pairs", split)
    return named(prepared.input_codec, corpus.inputs), named(prepared.output_codec, corpus.outputs)


def channel(prepared: Prepared, split: Any = "train") -> tuple[Table, Table]:
    corpus = open_corpus(prepared.directory, "swapped pairs", split)
    return named(prepared.output_codec, corpus.inputs), named(prepared.input_codec, corpus.outputs)


def language_model(prepared: Prepared, split: Any = "train") -> Table:
    corpus = open_corpus(prepared.directory, "outputs", split)
    assert corpus.inputs is None
    return named(prepared.output_codec, corpus.outputs)


def spelled(*words: str) -> Table:
    return [[*word, "<eos>"] for word in words]


# --- what each model reads and writes


def test_ids_of_a_small_corpus(shop: Workshop) -> None:
    prepared = shop.prepare("ab\txyy\nb\ty\n", dev="aab\tx\n")
    assert prepared.input_codec.symbols == ("b", "a")
    assert prepared.output_codec.symbols == ("y", "x")
    corpus = open_corpus(prepared.directory, "pairs", "train")
    assert corpus.inputs is not None
    assert [corpus.inputs[n].tolist() for n in range(2)] == [[5, 4, 2], [4, 2]]
    assert [corpus.outputs[n].tolist() for n in range(2)] == [[5, 4, 4, 2], [4, 2]]
    assert direct(prepared, "dev") == (spelled("aab"), spelled("x"))


def test_features_stand_before_inputs_and_before_what_the_channel_reads(shop: Workshop) -> None:
    prepared = shop.prepare("ab\tV;PST\txy\nb\tN\ty\na\t\tx\n", columns="sigmorphon2016")
    assert prepared.input_codec.features == prepared.output_codec.features == ("N", "PST", "V")
    inputs = [["<V>", "<PST>", "a", "b", "<eos>"], ["<N>", "b", "<eos>"], ["a", "<eos>"]]
    assert direct(prepared) == (inputs, spelled("xy", "y", "x"))
    assert channel(prepared) == ([["<V>", "<PST>", "x", "y", "<eos>"], ["<N>", "y", "<eos>"], ["x", "<eos>"]], inputs)
    assert language_model(prepared) == [["<V>", "<PST>", "x", "y", "<eos>"], ["<N>", "y", "<eos>"], ["x", "<eos>"]]


def test_the_language_model_reads_features_where_all_its_outputs_have_them(shop: Workshop) -> None:
    pairs = "ab\txy\tV\n"
    tagged = shop.prepare(pairs, columns="unimorph", unpaired="V;PST\tyy\n", unpaired_columns="features,output")
    assert language_model(tagged) == [["<V>", "x", "y", "<eos>"], ["<V>", "<PST>", "y", "y", "<eos>"]]
    assert tagged.input_codec.features == ("V",)
    assert tagged.output_codec.features == ("PST", "V"), "what unpaired outputs alone have is known too"
    assert not tagged.counts["unpaired"].unknown
    plain = shop.prepare(pairs, columns="unimorph", unpaired="yy\n")
    assert language_model(plain) == spelled("xy", "yy")
    assert plain.output_codec.features == ("V",)


@pytest.mark.parametrize("role", ["seq2seq", "attention"])
def test_the_baselines_read_what_the_direct_model_reads(shop: Workshop, role: Role) -> None:
    prepared = shop.prepare("ab\txy\tV\n", columns="unimorph")
    corpus = open_corpus(prepared.directory, ROLES[role].trained_on, "train")
    assert named(prepared.input_codec, corpus.inputs) == [["<V>", "a", "b", "<eos>"]]
    assert named(prepared.output_codec, corpus.outputs) == spelled("xy")


def test_the_language_model_learns_from_train_outputs_and_unpaired_ones(shop: Workshop) -> None:
    prepared = shop.prepare("a\txy\nb\tz\n", dev="a\tyx\n", unpaired="zz\n\nxw\n")
    assert language_model(prepared) == spelled("xy", "z", "zz", "xw")
    assert language_model(prepared, "dev") == spelled("yx")
    # w occurs in unpaired data only, and is known to every model.
    assert prepared.output_codec.symbols == ("z", "x", "w", "y")
    assert direct(prepared) == (spelled("a", "b"), spelled("xy", "z"))
    assert [prepared.counts[split].lines for split in ("train", "dev", "unpaired")] == [2, 1, 2]


def test_unpaired_outputs_are_taken_from_a_column(shop: Workshop) -> None:
    prepared = shop.prepare("a\tx\n", unpaired="17\txy\tV\n", unpaired_columns="-,output,features")
    assert language_model(prepared) == [["x", "<eos>"], ["x", "y", "<eos>"]]
    assert prepared.output_codec.features == ()


def test_the_vocabulary_does_not_see_the_dev_data(shop: Workshop) -> None:
    prepared = shop.prepare("a\tx\n", dev="ab\txz\n")
    assert direct(prepared, "dev") == ([["a", "<unk>", "<eos>"]], [["x", "<unk>", "<eos>"]])


def test_each_side_has_its_own_way_of_being_cut(shop: Workshop) -> None:
    config = {"input": TextConfig(units="words", lowercase=True), "output": TextConfig(digits_to_hash=True)}
    prepared = shop.prepare("Der Hund  bellt\ta1 2\n", **config)
    assert direct(prepared) == ([["der", "hund", "bellt", "<eos>"]], [["a", "#", " ", "#", "<eos>"]])


def test_chinese_needs_no_segmentation(shop: Workshop) -> None:
    """Segmented or not, the input is the same characters; the output is words."""
    config = {"input": TextConfig(units="characters", remove_spaces=True), "output": TextConfig(units="words")}
    for line in ("我 爱\u3000你", "我爱你", " 我爱 你 "):
        prepared = shop.prepare(f"{line}\ti love you\n", **config)
        assert direct(prepared) == ([["我", "爱", "你", "<eos>"]], [["i", "love", "you", "<eos>"]])
        assert prepared.input_codec.encode("你 爱 我") == prepared.input_codec.encode("你爱我")
    spaced = shop.prepare("我 爱 你\ti love you\n", input=TextConfig(), output=TextConfig(units="words"))
    assert direct(spaced)[0] == [["我", " ", "爱", " ", "你", "<eos>"]]


def test_chinese_subwords_cross_the_spaces_of_a_segmentation(shop: Workshop) -> None:
    text = "".join(f"{line}\tx\n" for line in ("我 爱 你", "我爱你", "他 爱你", "你 爱 他") * 10)
    config = TextConfig(units="subwords", max_size=12, remove_spaces=True)
    codec = shop.prepare(text, input=config, output=TextConfig(units="words")).input_codec
    assert codec.encode("我 爱 你") == codec.encode("我爱你")
    assert any(len(symbol.strip("▁")) > 1 for symbol in codec.symbols)


def test_subwords_are_trained_on_train_and_unpaired_outputs(shop: Workshop) -> None:
    # "wolf" stands in the unpaired outputs only: it is one piece where they are read, and four letters where not.
    animals = "ab\tfox owl\nba\tan owl and a fox\n" * 20
    wolves = "the wolf sat\na wolf ate the owl\nwolf and fox\nthe old wolf\nwolf\n" * 20
    config = {"output": TextConfig(units="subwords", max_size=30)}
    assert language_model(shop.prepare(animals, unpaired=wolves, **config))[-1] == ["▁wolf", "<eos>"]
    assert "▁wolf" not in shop.prepare(animals, **config).output_codec.symbols


def test_parallel_files(shop: Workshop) -> None:
    prepared = shop.prepare(
        "a b\nc\n",
        dev="b\n",
        train_outputs=shop.write("train.out", "x\ny\tz\n"),
        dev_outputs=shop.write("dev.out", "y\n"),
        unpaired="w\n",
    )
    assert direct(prepared) == (spelled("a b", "c"), spelled("x", "y\tz"))
    assert direct(prepared, "dev") == (spelled("b"), spelled("y"))
    assert language_model(prepared) == spelled("x", "y\tz", "w")


def test_preparing_again_gives_the_same_and_replaces_what_was_there(shop: Workshop) -> None:
    def fingerprints(prepared: Prepared) -> list[str]:
        kinds = ("outputs", "pairs", "swapped pairs")
        return [
            open_corpus(prepared.directory, kind, split).fingerprint for kind in kinds for split in ("train", "dev")
        ]

    long, short = "ab\txy\tV;N\nb\ty\tN\n" * 9, "b\ty\tN\n"
    first = fingerprints(shop.prepare(long, columns="unimorph"))
    other = fingerprints(shop.prepare(short, columns="unimorph"))
    assert first == fingerprints(shop.prepare(long, columns="unimorph"))
    assert not set(first) & set(other)


# --- pairs beside those of train: repeated ones, those of a model, made-up ones and copies


def test_real_pairs_are_repeated_for_the_models_of_pairs_alone(shop: Workshop) -> None:
    prepared = shop.prepare("a\txy\nb\tz\n", unpaired="zz\n", augment=AugmentConfig(repeat=3))
    assert direct(prepared) == (spelled(*"aaabbb"), spelled("xy", "xy", "xy", "z", "z", "z"))
    assert channel(prepared) == direct(prepared)[::-1]
    assert language_model(prepared) == spelled("xy", "z", "zz")
    assert direct(prepared, "dev") == (spelled("a", "b"), spelled("xy", "z"))
    assert prepared.counts["train"] == Counts(lines=2, repeat=3)
    assert prepared.summary() == "train 2 lines, each 3 times; dev 2 lines; unpaired 1 lines"


def test_further_pairs_are_for_the_models_of_pairs_alone(shop: Workshop) -> None:
    further = shop.write("further.tsv", "qa\txw\tPL\n")
    prepared = shop.prepare("a\txy\tSG\n", unpaired="zz\n", columns="unimorph", further=further)
    assert direct(prepared) == ([["<SG>", "a", "<eos>"], ["<PL>", "q", "a", "<eos>"]], spelled("xy", "xw"))
    assert channel(prepared)[0] == [["<SG>", "x", "y", "<eos>"], ["<PL>", "x", "w", "<eos>"]]
    assert language_model(prepared) == spelled("xy", "zz")
    assert prepared.counts["further"] == Counts(lines=1), "its symbols and features are known"


@pytest.mark.parametrize("lm_data", ["all", "unpaired"])
def test_the_language_model_sees_no_pair_that_was_made(shop: Workshop, lm_data: Any) -> None:
    pairs = "suchen\tgesucht\nblau\tblau\n"
    config: dict[str, Any] = {
        "unpaired": "stichelte\nkrabbe\n",
        "further": shop.write("further.tsv", "loben\tgelobt\n"),
        "lm_data": lm_data,
        "augment": AugmentConfig(made_up=30, copies=2, repeat=2),
    }
    prepared = shop.prepare(pairs, **config)
    inputs, outputs = direct(prepared)
    assert channel(prepared) == (outputs, inputs)
    assert len(inputs) == 2 * 2 + 1 + 30 + 2
    assert inputs[:5] == spelled("suchen", "suchen", "blau", "blau", "loben")
    assert outputs[:5] == spelled("gesucht", "gesucht", "blau", "blau", "gelobt")
    assert inputs[-2:] == outputs[-2:]
    assert sorted(inputs[-2:]) == spelled("krabbe", "stichelte")
    assert not any("<unk>" in sequence for sequence in inputs + outputs)
    assert language_model(prepared) == spelled(
        *(["gesucht", "blau"] if lm_data == "all" else []), "stichelte", "krabbe"
    )
    assert language_model(prepared, "dev") == spelled("gesucht", "blau")
    assert direct(prepared, "dev") == (spelled("suchen", "blau"), spelled("gesucht", "blau"))
    assert prepared.summary().endswith("unpaired 2 lines; further 1 lines; made-up 30 lines; copies 2 lines")


def test_fewer_made_up_pairs_than_asked_for_are_counted(shop: Workshop) -> None:
    prepared = shop.prepare("ab\txy\n", augment=AugmentConfig(made_up=30))
    assert direct(prepared) == (spelled("ab"), spelled("xy"))
    assert prepared.counts["made_up"] == Counts(wanted=30)
    assert prepared.summary() == "train 1 lines; dev 1 lines; unpaired 0 lines; made-up 0 lines, 30 were asked for"


def test_given_vocabularies_stay_and_the_made_up_pairs_are_the_same(shop: Workshop) -> None:
    config = shop.config("suchen\tgesucht\n", unpaired="stichelte\n", augment=AugmentConfig(made_up=20))
    (built,) = prepare(config, lambda group: shop.path / "built").values()
    codecs = {"": (built.input_codec, built.output_codec)}
    (again,) = prepare(config, lambda group: shop.path / "again", codecs).values()
    assert direct(again) == direct(built)
    narrow = {"": (built.input_codec, Codec(TextConfig(), built.output_codec.splitter, "gesucht", ()))}
    (other,) = prepare(config, lambda group: shop.path / "other", narrow).values()
    assert direct(other)[0] == direct(built)[0]
    assert set(other.counts["made_up"].unknown) == {"i", "l"}


def test_each_group_has_its_own_made_up_and_further_pairs(shop: Workshop) -> None:
    groups = shop.prepare_groups(
        "deu\tsuchen\tgesucht\nswe\tfodra\tfodrade\n",
        unpaired="deu\tstichelte\nswe\tpojke\nspa\tperro\n",
        columns="group,input,output",
        unpaired_columns="group,output",
        further=shop.write("further.tsv", "swe\tleka\tlekade\n"),
        augment=AugmentConfig(made_up=10),
        lm_data="unpaired",
    )
    assert [len(direct(prepared)[0]) for prepared in groups.values()] == [11, 12]
    assert direct(groups["swe"])[0][1] == [*"leka", "<eos>"]
    assert all(sequence[-3:] == ["d", "e", "<eos>"] for sequence in direct(groups["swe"])[1])
    assert [language_model(prepared) for prepared in groups.values()] == [spelled("stichelte"), spelled("pojke")]
    assert [prepared.counts["further"].lines for prepared in groups.values()] == [0, 1]


def test_a_group_of_further_that_train_has_not_is_refused(shop: Workshop) -> None:
    further = shop.write("further.tsv", "deu\ta\tx\nfra\tb\ty\n")
    complaint = shop.refusal("deu\ta\tx\n", columns="group,input,output", further=further)
    assert complaint.startswith(f"{further[0]}:2: the group 'fra' does not occur in data.train")


def test_a_group_without_unpaired_outputs_is_refused_if_nothing_else_is_for_the_language_model(shop: Workshop) -> None:
    complaint = shop.refusal(
        "deu\ta\tx\nfra\tb\ty\n",
        unpaired="deu\tx\n",
        columns="group,input,output",
        unpaired_columns="group,output",
        lm_data="unpaired",
    )
    assert complaint.startswith("data.unpaired: no line of the group 'fra' is left")


def test_an_empty_file_of_further_pairs_is_refused(shop: Workshop) -> None:
    further = shop.write("further.tsv", "")
    assert shop.refusal("a\tx\n", further=further).startswith(f"{further[0]}: empty, ")


# --- groups


def test_every_group_has_its_own_vocabulary_and_corpora(shop: Workshop) -> None:
    groups = shop.prepare_groups(
        "deu\tab\txy\tV\nfra\tc\tz\tN\ndeu\tb\tyy\tV\n",
        dev="fra\tc\tz\tN\ndeu\ta\tx\tV\n",
        unpaired="fra\tzzw\ndeu\tx\nspa\tñ\nfra\tw\n",
        columns="group,input,output,features",
        unpaired_columns="group,output",
    )
    assert list(groups) == ["deu", "fra"]
    german, french = groups["deu"], groups["fra"]
    assert german.directory != french.directory
    assert german.input_codec.names[4:] == ("<V>", "b", "a")
    assert french.input_codec.names[4:] == ("<N>", "c")
    assert french.output_codec.names[4:] == ("<N>", "z", "w")
    assert direct(german) == ([["<V>", "a", "b", "<eos>"], ["<V>", "b", "<eos>"]], spelled("xy", "yy"))
    assert direct(french) == ([["<N>", "c", "<eos>"]], spelled("z"))
    assert direct(german, "dev") == ([["<V>", "a", "<eos>"]], spelled("x"))
    assert language_model(german) == spelled("xy", "yy", "x")
    assert language_model(french) == spelled("z", "zzw", "w")
    # The unpaired outputs of a language without pairs are nobody's.
    assert german.counts["unpaired"].lines == 1
    assert french.counts["unpaired"].lines == 2


def test_a_group_of_dev_that_train_has_not_is_refused(shop: Workshop) -> None:
    complaint = shop.refusal("deu\ta\tx\n", dev="deu\ta\tx\nfra\tb\ty\n", columns="group,input,output")
    assert complaint.startswith(f"{shop.path / 'dev.tsv'}:2: the group 'fra' does not occur in data.train")


def test_a_group_of_train_that_dev_has_not_is_refused(shop: Workshop) -> None:
    complaint = shop.refusal("deu\ta\tx\nfra\tb\ty\n", dev="deu\ta\tx\n", columns="group,input,output")
    assert complaint.startswith("data.dev: no line of the group 'fra' is left")


def test_groups_of_unpaired_outputs_do_not_matter_where_pairs_have_none(shop: Workshop) -> None:
    prepared = shop.prepare("a\tx\n", unpaired="deu\txx\nfra\ty\n", unpaired_columns="group,output")
    assert language_model(prepared) == spelled("x", "xx", "y")


def test_many_groups_need_few_open_files(shop: Workshop) -> None:
    rows = "".join(f"group {n}\ta\tx\n" for n in range(40))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, limits[1]))
    try:
        groups = shop.prepare_groups(rows, columns="group,input,output")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [language_model(prepared) for prepared in groups.values()] == [spelled("x")] * 40


# --- what is counted


def test_long_items_are_dropped_and_counted(shop: Workshop) -> None:
    prepared = shop.prepare(
        "abc\tx\nabcd\tx\nab\txyz\nb\txy\n",
        dev="a\tx\nabcde\tx\n",
        unpaired="xy\nxyx\nyx\nxxxx\n",
        input=TextConfig(max_length=3),
        output=TextConfig(max_length=2),
    )
    assert direct(prepared) == (spelled("abc", "b"), spelled("x", "xy"))
    assert channel(prepared) == (spelled("x", "xy"), spelled("abc", "b"))
    assert direct(prepared, "dev") == (spelled("a"), spelled("x"))
    assert language_model(prepared) == spelled("x", "xy", "xy", "yx")
    assert prepared.counts["train"] == Counts(lines=4, dropped=2)
    assert prepared.counts["dev"] == Counts(lines=2, dropped=1)
    assert prepared.counts["unpaired"] == Counts(lines=4, dropped=2)
    assert prepared.counts["train"].summary() == "2 lines, 2 dropped as too long"


def test_long_items_are_truncated_and_counted(shop: Workshop) -> None:
    prepared = shop.prepare(
        "abc\tx\nabcd\tx\nab\txyz\n",
        dev="a\tx\n",
        unpaired="xyx\ny\n",
        input=TextConfig(max_length=3),
        output=TextConfig(max_length=2),
        too_long="truncate",
    )
    assert direct(prepared) == (spelled("abc", "abc", "ab"), spelled("x", "x", "xy"))
    assert language_model(prepared) == spelled("x", "x", "xy", "xy", "y")
    assert prepared.counts["train"] == Counts(lines=3, truncated=2)
    assert prepared.counts["dev"] == Counts(lines=1)
    assert prepared.counts["unpaired"] == Counts(lines=2, truncated=1)
    assert prepared.counts["train"].summary() == "3 lines, 2 truncated"


def test_a_line_truncated_on_both_sides_counts_once(shop: Workshop) -> None:
    short = TextConfig(max_length=1)
    prepared = shop.prepare("ab\txy\n", input=short, output=short, too_long="truncate")
    assert direct(prepared) == (spelled("a"), spelled("x"))
    assert prepared.counts["train"] == Counts(lines=1, truncated=1)


def test_features_do_not_count_towards_the_length(shop: Workshop) -> None:
    short = TextConfig(max_length=2)
    prepared = shop.prepare("ab\txy\tV;PST;3;SG\n", columns="unimorph", input=short, output=short)
    assert direct(prepared)[0] == [["<V>", "<PST>", "<3>", "<SG>", "a", "b", "<eos>"]]
    assert prepared.counts["train"] == Counts(lines=1)


def test_length_is_counted_in_symbols(shop: Workshop) -> None:
    prepared = shop.prepare(
        "a b\tx\na b c\tx\n", input=TextConfig(units="words", max_length=2), output=TextConfig(max_length=5)
    )
    assert direct(prepared)[0] == [["a", "b", "<eos>"]]


def test_unknown_symbols_are_counted(shop: Workshop) -> None:
    prepared = shop.prepare("aab\txy\nac\txx\n", dev="abz\txqq\naz\ty\n", input=TextConfig(min_count=2))
    assert prepared.counts["train"].unknown == Counter("bc")
    assert prepared.counts["dev"].unknown == Counter({"z": 2, "q": 2, "b": 1})
    assert prepared.counts["unpaired"].unknown == Counter()
    assert prepared.counts["dev"].summary() == "2 lines, 5 unknown symbols ('z' ×2, 'q' ×2, 'b' ×1)"
    corpus = open_corpus(prepared.directory, "pairs", "dev")
    assert corpus.inputs is not None
    assert corpus.inputs[0].tolist() == [4, UNK, UNK, EOS]


def test_unknown_symbols_behind_a_truncation_are_not_counted(shop: Workshop) -> None:
    short = TextConfig(max_length=2)
    prepared = shop.prepare("ab\tx\n", dev="azqqq\tx\n", input=short, too_long="truncate")
    assert prepared.counts["dev"] == Counts(lines=1, truncated=1, unknown=Counter("z"))


def test_unknown_symbols_of_dropped_lines_are_not_counted(shop: Workshop) -> None:
    short = TextConfig(max_length=2)
    prepared = shop.prepare("ab\txy\n", dev="ab\txy\naz\txyxy\nabab\tq\n", input=short, output=short)
    assert prepared.counts["dev"] == Counts(lines=3, dropped=2)


def test_a_summary_shows_the_most_frequent_unknown_symbols() -> None:
    counts = Counts(lines=12_345, dropped=1_345, truncated=2_000, unknown=Counter("aaaabbbccdef"))
    assert counts.summary() == (
        "11,000 lines, 1,345 dropped as too long, 2,000 truncated, "
        "12 unknown symbols ('a' ×4, 'b' ×3, 'c' ×2, 'd' ×1, 'e' ×1, …)"
    )
    assert Counts(lines=7).summary() == "7 lines"


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"train": []}, "data.train: no file given"),
        ({"dev": []}, "data.dev: no file given"),
        ({"train_outputs": ["y"]}, "data.train_outputs and data.dev_outputs go together"),
        ({"dev_outputs": ["y"]}, "data.train_outputs and data.dev_outputs go together"),
        ({"train_outputs": ["y"], "dev_outputs": ["y"], "columns": "unimorph"}, "data.columns: parallel files"),
        ({"columns": "input"}, "data.columns: 'output' must occur exactly once"),
        ({"unpaired_columns": "input"}, "data.unpaired_columns: 'output' must occur exactly once"),
        ({"feature_separator": ""}, "data.feature_separator"),
        ({"lm_data": "unpaired"}, "data.lm_data: is unpaired, but data.unpaired names no file"),
        ({"augment": AugmentConfig(copies=1)}, "data.augment.copies: copies are made of unpaired outputs, but"),
    ],
    ids=[
        "train",
        "dev",
        "train_outputs",
        "dev_outputs",
        "columns",
        "no output",
        "unpaired",
        "separator",
        "lm_data",
        "copies",
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        DataSource(DataConfig(**{"train": ["x"], "dev": ["x"], **settings}))
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize("split", ["train", "dev", "unpaired"])
def test_an_empty_file_is_refused(shop: Workshop, split: str) -> None:
    texts = {"train": "a\tx\n", "dev": "a\tx\n", "unpaired": "x\n", split: ""}
    name = "unpaired.txt" if split == "unpaired" else f"{split}.tsv"
    assert shop.refusal(**texts).startswith(f"{shop.path / name}: empty, ")


def test_an_unpaired_list_of_empty_lines_is_refused(shop: Workshop) -> None:
    assert shop.refusal("a\tx\n", unpaired="\n\n").startswith(f"{shop.path / 'unpaired.txt'}: empty, ")


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_split_of_which_nothing_is_left_is_refused(shop: Workshop, split: str) -> None:
    texts = {"train": "a\tx\n", "dev": "a\tx\n", split: "aaaa\tx\n"}
    complaint = shop.refusal(**texts, input=TextConfig(max_length=3))
    assert complaint == f"data.{split}: no line is left (too long, or none given); increase max_length"


@pytest.mark.parametrize("split", ["train", "dev", "unpaired"])
@pytest.mark.parametrize("units", ["characters", "subwords"])
def test_a_bad_line_is_named_whatever_reads_it_first(shop: Workshop, split: str, units: Any) -> None:
    bad = "xyx\nx\ty\n" if split == "unpaired" else "ab\txy\n" * 30 + "ab\n"
    texts = {"train": "ab\txy\n" * 30, "unpaired": "xyx\n", split: bad}
    complaint = shop.refusal(**texts, output=TextConfig(units=units, max_size=20))
    file = shop.path / ("unpaired.txt" if split == "unpaired" else f"{split}.tsv")
    assert complaint.startswith(f"{file}:{bad.count(chr(10))}: ")


def test_a_refusal_leaves_no_file_open(shop: Workshop) -> None:
    assert shop.files_left_open("deu\ta\tx\n", dev="fra\tb\ty\n", columns="group,input,output") == []


def test_a_place_that_cannot_be_written_is_named(shop: Workshop) -> None:
    config = shop.config("a\tx\n")
    (shop.path / "file").write_text("")
    with pytest.raises(NoisyChannelError, match="cannot be written"):
        prepare(config, lambda group: shop.path / "file" / "prepared")


# --- against a plain version with lists

symbol_texts = st.text("abc", min_size=1, max_size=4)
rows_of_two_groups = st.lists(
    st.tuples(st.sampled_from("GH"), symbol_texts, symbol_texts, st.lists(st.sampled_from("VN"), max_size=2)),
    max_size=8,
)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    train=rows_of_two_groups,
    dev=rows_of_two_groups,
    unpaired=st.lists(st.tuples(st.sampled_from("GHI"), symbol_texts), max_size=6),
    max_length=st.integers(2, 5),
)
def test_prepare_is_the_plain_version(
    train: list[tuple[str, str, str, list[str]]],
    dev: list[tuple[str, str, str, list[str]]],
    unpaired: list[tuple[str, str]],
    max_length: int,
) -> None:
    first = [(group, "a", "b", ["V", "N"]) for group in "GH"]
    train, dev, unpaired = [*first, *train], [*first, *dev], [("I", "c"), *unpaired]
    short = TextConfig(max_length=max_length)
    with tempfile.TemporaryDirectory() as directory:
        groups = Workshop(Path(directory)).prepare_groups(
            *("".join("\t".join([*row[:3], ";".join(row[3])]) + "\n" for row in rows) for rows in (train, dev)),
            "".join(f"{group}\t{text}\n" for group, text in unpaired),
            columns="group,input,output,features",
            unpaired_columns="group,output",
            input=short,
            output=short,
        )
        assert set(groups) == {"G", "H"}
        for group, prepared in groups.items():
            kept = {
                split: [(x, y, f) for g, x, y, f in rows if g == group and max(len(x), len(y)) <= max_length]
                for split, rows in (("train", train), ("dev", dev))
            }
            more = [text for g, text in unpaired if g == group and len(text) <= max_length]
            known_inputs = {c for g, x, _, _ in train if g == group for c in x}
            known_outputs = {c for g, _, y, _ in train if g == group for c in y} | {
                c for g, text in unpaired if g == group for c in text
            }
            for split, rows in kept.items():
                xs = [[*(c if c in known_inputs else "<unk>" for c in x), "<eos>"] for x, _, _ in rows]
                ys = [[*(c if c in known_outputs else "<unk>" for c in y), "<eos>"] for _, y, _ in rows]
                tags = [[f"<{tag}>" for tag in features] for _, _, features in rows]
                inputs = [t + x for t, x in zip(tags, xs, strict=True)]
                assert direct(prepared, split) == (inputs, ys)
                assert channel(prepared, split) == ([t + y for t, y in zip(tags, ys, strict=True)], inputs)
                assert language_model(prepared, split) == ys + (spelled(*more) if split == "train" else [])


# --- memory

PAIRS, UNPAIRED = 50_000, 25_000
BOUND = 10
"""MiB. A line costs four bytes in each list of lengths, what is not yet written a fixed amount: well below 10 MiB."""

MEASURED = """
import random, sys
from pathlib import Path

from noisychannel.data.prepare import DataConfig, DataSource, prepare
from noisychannel.text import TextConfig

def peak():
    # Unlike ru_maxrss this begins anew with the program, and knows nothing of the process that started it.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024

directory, pairs, unpaired = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(1)
words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]
sentences = [" ".join(rng.choices(words, k=14)) for _ in range(997)]
with open(directory / "train.tsv", "w") as file:
    file.writelines(f"{sentences[n % 997]}\\t{sentences[7 * n % 997]}\\n" for n in range(pairs))
with open(directory / "unpaired.txt", "w") as file:
    file.writelines(f"{sentences[3 * n % 997]}\\n" for n in range(unpaired))
(directory / "dev.tsv").write_text("a\\tb\\n")
config = DataConfig(
    train=[str(directory / "train.tsv")], dev=[str(directory / "dev.tsv")], unpaired=[str(directory / "unpaired.txt")],
    input=TextConfig(units="words"), output=TextConfig(units="words"),
)

before = peak()
(prepared,) = prepare(config, lambda group: directory / "prepared").values()
print(prepared.counts["train"].lines, prepared.counts["unpaired"].lines, peak() - before)

source = DataSource(config)
inputs = [prepared.input_codec.encode(row.input) for row in source.rows("train")]
outputs = [prepared.output_codec.encode(row.output) for split in ("train", "unpaired") for row in source.rows(split)]
print(len(inputs), len(outputs), peak() - before)
"""


@pytest.fixture
def roomy_directory() -> Iterator[Path]:
    """A directory that is removed at once, for large files."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_memory_stays_far_below_lists_of_ids(roomy_directory: Path) -> None:
    command = [sys.executable, "-c", MEASURED, str(roomy_directory), str(PAIRS), str(UNPAIRED)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    bounded, lists = (line.split() for line in output.splitlines())
    assert bounded[:2] == [str(PAIRS), str(UNPAIRED)]
    assert lists[:2] == [str(PAIRS), str(PAIRS + UNPAIRED)]
    assert float(bounded[2]) < BOUND
    # Two of the five sequences that are stored, as lists, are already twice too much.
    assert float(lists[2]) > 2 * BOUND
