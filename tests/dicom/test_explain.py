"""Explaining a source: what matches, what nearly does, and rules that an import accepts."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from dicom_files import edit, write_seg, write_series
from import_cases import (
    RULES,
    adc_values,
    flip_angle_values,
    phase_values,
    regions,
    voxels,
    write_patient,
    write_rois,
)
from typer.testing import CliRunner

from cad.base.errors import CadError
from cad.cli import app
from cad.dicom.into.explain import decisions, explain_source, write_rules
from cad.dicom.into.importer import import_source
from cad.run.execution.options import ExecutionOptions
from cad.run.workflows.imports import page_of, write_rules_confined


def test_series_by_rules_with_near_misses(tmp_path: Path, rules: Path):
    source = write_patient(tmp_path / "in")
    write_seg(
        source / "seg.dcm",
        sorted((source / "t2").iterdir()),
        {"ROI 1": regions(1).array > 0, "Bladder": regions(0, 1).array > 0},
    )
    rules.write_text(RULES.replace("{image_type: [ADC]}", "{image_type: [ADC], description: x}"))
    found = explain_source(source, rules)
    ((series, objects),) = [(study.series, study.objects) for study in found.studies]
    by_number = {one.number: one for one in series}
    assert by_number[1].taken_by == ["t2w"]
    assert by_number[2].taken_by == []
    assert by_number[2].near_misses == ["adc, entry 1: description is not x"]
    assert by_number[3].taken_by == ["vfa"]
    assert by_number[20].taken_by == ["dce"]
    assert by_number[9].images == ["9 x 9 x 1 voxels of 1 x 1 x 3 mm, flip 150"]
    assert objects == ["SEG seg.dcm: 'ROI 1', 'Bladder' (not asked for)"]
    assert "series 2 'adc' [DERIVED\\PRIMARY\\ADC]: not taken" in found.as_text()


def test_the_starter_file_imports_the_source(tmp_path: Path):
    source = write_patient(tmp_path / "in")
    write_rois(source, 1)
    rules = tmp_path / "starter.yaml"
    rules.write_text(explain_source(source).starter)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    (study,) = summary.added
    names = {p.name.removeprefix(study + "_") for p in (tmp_path / "out" / study).rglob("*.gz")}
    assert {"T2w.nii.gz", "ADC.nii.gz", "dce.nii.gz", "rois.nii.gz"} <= names


def test_problems_are_told_and_nothing_is_written(tmp_path: Path):
    source = write_patient(tmp_path / "in", dce=False)
    edit(next((source / "adc").iterdir()), PatientID="P-002")
    write_series(
        source / "mosaic",
        voxels(3, (1, 8, 8)),
        number=30,
        description="mosaic",
        ImageType=["ORIGINAL", "PRIMARY", "M", "MOSAIC"],
    )
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["import", str(source), "--explain", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (study,) = told["studies"]
    assert any("2 patients in one study" in text for text in study["problems"])
    assert any("a mosaic that does not say how many" in text for text in study["problems"])
    assert sorted(tmp_path.rglob("*")) == before
    lost = CliRunner().invoke(app, ["import", str(source)])
    assert lost.exit_code != 0
    assert "--explain" in str(lost.exception.hint)  # type: ignore[union-attr]


@pytest.mark.reference
def test_the_zoo_is_explained_without_a_problem(shared_data: Path):
    found = explain_source(shared_data / "zoo")
    assert found.problems == []
    assert [p for study in found.studies for p in study.problems] == []
    assert all(one.images and not one.problem for s in found.studies for one in s.series)


def test_the_phases_of_one_dynamic_series_are_one_line(tmp_path: Path):
    """A dynamic series may come as a series a phase: seventy lines say no more than one."""
    for phase in range(6):
        write_series(
            tmp_path / "in" / f"{phase}",
            voxels(phase, (2, 8, 8)),
            number=10 + phase,
            description=f"twist_TT={phase}.5s",
        )
    write_series(tmp_path / "in" / "other", voxels(9, (3, 8, 8)), number=16, description="twist_7")
    text = explain_source(tmp_path / "in").as_text()
    assert "  series 10 to 15, 6 alike, 'twist_TT=0.5s'" in text
    assert "  series 16 'twist_7'" in text
    assert text.count("image: ") == 2
    assert text.rstrip().endswith(explain_source(tmp_path / "in").starter.rstrip())


@pytest.mark.reference
def test_where_two_series_could_be_the_adc_map_a_person_decides(shared_data: Path, tmp_path: Path):
    """ProstateX-0218: free water measures 3.1 in one of its two maps, 2.0 in the other."""
    source, rules = shared_data / "prostatex" / "ProstateX-0218", tmp_path / "rules.yaml"
    undecided = write_rules(source, rules)
    assert list(undecided) == ["adc"]
    waters = {}
    for candidate in undecided["adc"]:
        number = int(re.findall(r"series (\d+)", candidate.line)[0])
        waters[number] = int(re.findall(r"brightest water (\d+)", candidate.line)[0])
        # Three slices, at their own grey levels, small enough for a page.
        assert len(candidate.slices) == 3
        for grey in candidate.slices:
            assert grey.dtype == np.uint8
            assert max(grey.shape) <= 200
            assert np.ptp(grey) > 100
    assert set(waters) == {12, 21}
    assert 2900 < waters[12] < 3300
    assert 1800 < waters[21] < 2300
    with pytest.raises(CadError, match="do not decide which series is adc") as caught:
        import_source(source, tmp_path / "out", rules)
    assert "--take adc=SERIES" in caught.value.hint
    changed = tmp_path / "changed.yaml"
    changed.write_bytes(b"# mine\n" + rules.read_bytes())
    with pytest.raises(CadError, match="there already"):
        write_rules(source, changed)
    decided = tmp_path / "decided.yaml"
    assert write_rules(source, decided, {"adc": 12}) == {}
    summary = import_source(source, tmp_path / "out", decided)
    assert summary.failures == []
    assert any("adc from series 12" in note for note in summary.notes)
    # Rules that keep both matches take the first, and say which other series there is.
    both = yaml.safe_load(rules.read_text(encoding="utf-8"))
    del both["undecided"]
    rules.write_text(yaml.safe_dump(both), encoding="utf-8")
    summary = import_source(source, tmp_path / "both", rules)
    (note,) = [note for note in summary.notes if "later match" in note]
    assert re.search(r"adc: series (12|21) meet a later match .*; series (12|21) meets an", note)


def test_a_series_that_a_man_has_twice_is_asked_and_the_answer_is_kept(tmp_path: Path):
    """A description cannot decide between two series that share it; the series number can."""
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    tags = {"ImageType": ["DERIVED", "PRIMARY", "ADC"], "patient": "P-001", "study": "study1"}
    write_series(folder / "again", adc_values(3), number=7, description="adc", **tags)
    write_patient(tmp_path / "in" / "P-002", "P-002")
    rules = tmp_path / "rules.yaml"
    undecided = write_rules(tmp_path / "in", rules)
    numbers = [re.findall(r"series (\d+)", candidate.line)[0] for candidate in undecided["adc"]]
    assert list(undecided) == ["adc"]
    assert numbers == ["2", "7"]  # the other man has one map, which nobody needs to be asked about
    for number in (2, 7):
        decided = tmp_path / f"decided-{number}.yaml"
        assert write_rules(tmp_path / "in", decided, {"adc": number}) == {}
        summary = import_source(tmp_path / "in", tmp_path / f"out-{number}", decided)
        assert summary.failures == []
        assert any(f"adc from series {number}" in note for note in summary.notes)
        assert sum("adc from series" in note for note in summary.notes) == 2


def test_a_number_that_means_two_series_does_not_decide(tmp_path: Path):
    """Series 5 is one map in one man, and the other map in the other man."""
    for patient, first in (("P-001", 5), ("P-002", 6)):
        folder = write_patient(tmp_path / "in" / patient, patient)
        tags = {"ImageType": ["DERIVED", "PRIMARY", "ADC"], "patient": patient, "study": "study1"}
        for number, text in ((first, "adc_b800"), (11 - first, "adc_b1400")):
            write_series(folder / text, adc_values(number), number=number, description=text, **tags)
    with pytest.raises(CadError, match="series 5 is 'adc_b1400' and 'adc_b800'") as caught:
        write_rules(tmp_path / "in", tmp_path / "rules.yaml", {"adc": 5})
    assert "rules file" in caught.value.hint
    assert not (tmp_path / "rules.yaml").exists()
    with pytest.raises(CadError, match="names adc twice"):
        decisions(["adc=5", "adc=7"])


def test_a_plain_series_of_many_men_is_no_dynamic_series(tmp_path: Path):
    for number in range(6):
        patient = f"P-00{number}"
        folder = write_patient(tmp_path / "in" / patient, patient, dce=False, seed=number)
        tags = {"patient": patient, "study": "study1"}
        write_series(
            folder / "sag", voxels(50 + number), number=40, description="t2 sag 3 mm", **tags
        )
    write_rules(tmp_path / "in", tmp_path / "rules.yaml")
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert "dce" not in rules
    assert rules["vfa"] == [{"description": "^vibe$"}]  # two angles in each of six men


def test_series_of_lower_b_values_are_no_rivals_of_the_high_b_image(tmp_path: Path):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    tags = {"patient": "P-001", "study": "study1"}
    for number, b_value in ((31, 50), (32, 800), (33, 1500), (34, 1500)):
        write_series(
            folder / f"b{number}",
            voxels(number),
            number=number,
            description=f"diffusion b{b_value}",
            DiffusionBValue=float(b_value),
            **tags,
        )
        if number == 33:
            assert write_rules(tmp_path / "in", tmp_path / "once.yaml") == {}
    undecided = write_rules(tmp_path / "in", tmp_path / "twice.yaml")
    numbers = [re.findall(r"series (\d+)", candidate.line)[0] for candidate in undecided["hbv"]]
    assert numbers == ["33", "34"]
    write_rules(tmp_path / "in", tmp_path / "decided.yaml", {"hbv": 34})
    matches = yaml.safe_load((tmp_path / "decided.yaml").read_text())["hbv"]
    assert [match.get("series_number") for match in matches] == [34, None]
    assert [match["b_value"] for match in matches] == [1500.0, 1500.0]


def write_phases(folder: Path, first: int, description: str) -> None:
    """Write three phases of a dynamic series, one series each."""
    for index, time in enumerate((8.0, 12.2, 16.4)):
        write_series(
            folder / f"{description}{index}",
            phase_values(index),
            number=first + index,
            description=f"{description} TT={time}s",
            FlipAngle="12",
            RepetitionTime="3.85",
        )


def test_two_dynamic_series_of_a_man_are_asked_and_only_the_chosen_one_is_imported(tmp_path: Path):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    write_phases(folder, 30, "perf")
    rules = tmp_path / "rules.yaml"
    words = ["import", str(tmp_path / "in"), "--new-rules", str(rules)]
    asked = CliRunner().invoke(app, words)
    assert asked.exit_code == 0, asked.output
    assert "which series is dce? (--take dce=SERIES, or edit the file)" in asked.output
    numbers = re.findall(r"series (\d+) '(dyn|perf)", asked.output)
    assert numbers == [("20", "dyn"), ("30", "perf")]  # one line for all phases of each
    assert "dynamic series" in (tmp_path / "rules.yaml.html").read_text()
    with pytest.raises(CadError, match="do not decide which series is dce"):
        import_source(tmp_path / "in", tmp_path / "out", rules)
    for number, description in ((21, "dyn"), (30, "perf")):
        decided = tmp_path / f"decided-{number}.yaml"
        assert write_rules(tmp_path / "in", decided, {"dce": number}) == {}
        (match,) = yaml.safe_load(decided.read_text())["dce"]["match"]
        assert match["description"].startswith(f"^{description} ")
        summary = import_source(tmp_path / "in", tmp_path / f"out-{number}", decided)
        assert summary.failures == []
        assert any("dce from 3 phases" in note for note in summary.notes)


def test_a_dynamic_series_that_a_man_has_twice_is_asked(tmp_path: Path):
    """Two series of one description, each with all phases; in another man there is one."""
    for patient, numbers in (("P-001", (40, 50)), ("P-002", (60,))):
        folder = write_patient(tmp_path / "in" / patient, patient, dce=False, seed=len(numbers))
        for number in numbers:
            for phase in range(6):
                write_series(
                    folder / f"d{number}",
                    phase_values(phase),
                    number=number,
                    description="dynamic",
                    prefix=f"{phase}-",
                    patient=patient,
                    FlipAngle="12",
                    RepetitionTime="3.85",
                    AcquisitionTime=f"1015{10 * phase:02d}.00",
                )
    undecided = write_rules(tmp_path / "in", tmp_path / "rules.yaml")
    assert list(undecided) == ["dce"]
    lines = [candidate.line for candidate in undecided["dce"]]
    assert [re.findall(r"series (\d+)", line)[0] for line in lines] == ["40", "50"]
    assert all("6 of " in line for line in lines)
    decided = tmp_path / "decided.yaml"
    assert write_rules(tmp_path / "in", decided, {"dce": 50}) == {}
    matches = yaml.safe_load(decided.read_text())["dce"]["match"]
    # All matches of this rule are joined: a second one would join both series again.
    assert matches == [{"description": "^dynamic$", "series_number": 50}]
    summary = import_source(tmp_path / "in", tmp_path / "out", decided)
    assert any("dce from 6 phases" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("ep2d_diff_tra_DYNDISTCALC_BVAL", ["DERIVED", "PRIMARY", "DIFFUSION", "TRACEW"]),
        ("cDWI b2000", ["DERIVED", "PRIMARY", "DIFFUSION"]),
        ("ep2d_tra", ["DERIVED", "PRIMARY", "DIFFUSION", "CALC_BVALUE"]),
        ("Synthetic DWI", ["DERIVED", "PRIMARY"]),
    ],
)
def test_a_calculated_image_is_a_high_b_image_and_never_under_diffusion(
    tmp_path: Path, description: str, kind: list[str]
):
    """One man has two of them, another man one of another description."""
    for patient, calculated in (("P-001", description), ("P-002", f"{description} MIX")):
        folder = write_patient(tmp_path / "in" / patient, patient, seed=len(calculated))
        tags = {"patient": patient, "study": "study1"}
        for number, b_value in ((31, 50), (32, 800)):
            write_series(
                folder / f"b{b_value}",
                voxels(number),
                number=number,
                description=f"trace b{b_value}",
                ImageType=["DERIVED", "PRIMARY", "DIFFUSION", "TRACEW"],
                DiffusionBValue=float(b_value),
                **tags,
            )
        write_series(
            folder / "calculated",
            voxels(33),
            number=33,
            description=calculated,
            ImageType=kind,
            DiffusionBValue=2000.0,
            **tags,
        )
    assert write_rules(tmp_path / "in", tmp_path / "rules.yaml") == {}
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert [match["description"] for match in rules["diffusion"]] == [r"^trace b[\d.]+$"]
    assert len(rules["hbv"]) == 2
    assert {match["b_value"] for match in rules["hbv"]} == {2000.0}


def write_diffusion(folder: Path, number: int, b_value: float, kind: list[str]) -> None:
    write_series(
        folder / f"series{number}",
        voxels(number),
        number=number,
        description="ep2d_diff_tra",
        ImageType=kind,
        DiffusionBValue=b_value,
        patient="P-001",
        study="study1",
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_calculated_image_of_the_description_of_acquired_ones_is_asked(
    tmp_path: Path, first: bool
):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    trace = ["DERIVED", "PRIMARY", "DIFFUSION", "TRACEW"]
    write_diffusion(folder, 31, 50.0, trace)
    write_diffusion(folder, 32, 800.0, trace)
    write_diffusion(folder, 30 if first else 33, 1400.0, [*trace, "CALC_BVALUE"])
    rules = tmp_path / "rules.yaml"
    words = ["import", str(tmp_path / "in"), "--new-rules", str(rules)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "do the matches of diffusion take acquired images alone?" in done.output
    content = yaml.safe_load(rules.read_text())
    assert [match["b_value"] for match in content["diffusion"]] == [50.0, 800.0]
    assert [match["b_value"] for match in content["hbv"]] == [1400.0]
    words_of_lines = [line.rpartition(", ")[2] for line in content["undecided"]["diffusion"]]
    assert sorted(words_of_lines) == ["acquired", "acquired", "calculated"]
    with pytest.raises(CadError, match="do not decide which series is diffusion") as refused:
        import_source(tmp_path / "in", tmp_path / "out", rules)
    assert "acquired images alone" in str(refused.value)
    del content["undecided"]
    rules.write_text(yaml.safe_dump(content))
    assert import_source(tmp_path / "in", tmp_path / "out", rules).failures == []


def test_a_high_b_image_of_the_description_of_the_others_leaves_diffusion_in_the_rules(
    tmp_path: Path,
):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    trace = ["DERIVED", "PRIMARY", "DIFFUSION", "TRACEW"]
    for number, b_value in ((31, 50.0), (32, 800.0), (33, 1400.0)):
        write_diffusion(folder, number, b_value, trace)
    assert write_rules(tmp_path / "in", tmp_path / "rules.yaml") == {}
    content = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert content["diffusion"] == [{"description": r"^ep[\d.]+d_diff_tra$", "exclude": "adc"}]
    assert [match["b_value"] for match in content["hbv"]] == [1400.0]
    assert import_source(tmp_path / "in", tmp_path / "out", tmp_path / "rules.yaml").failures == []


@pytest.mark.reference
def test_the_calculated_images_of_five_men_are_not_taken_for_acquired_ones(
    shared_data: Path, tmp_path: Path
):
    assert write_rules(shared_data / "prostatex-men", tmp_path / "rules.yaml") == {}
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert not any("CALC" in match["description"] for match in rules["diffusion"])
    assert len(rules["diffusion"]) == 2
    assert all("CALC" in match["description"] for match in rules["hbv"])
    assert len(rules["hbv"]) == 2


def test_one_b_value_in_two_series_is_asked_and_a_description_is_chosen(tmp_path: Path):
    """The other description keeps the b-values that the chosen one has not."""
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    series = ((31, 50, "dwi A"), (32, 800, "dwi A"), (41, 50, "dwi B"), (42, 400, "dwi B"))
    for number, b_value, description in series:
        write_series(
            folder / f"b{number}",
            voxels(number),
            number=number,
            description=description,
            DiffusionBValue=float(b_value),
        )
    rules = tmp_path / "rules.yaml"
    words = ["import", str(tmp_path / "in"), "--new-rules", str(rules)]
    asked = CliRunner().invoke(app, words)
    assert asked.exit_code == 0, asked.output
    assert re.findall(r"series (\d+) 'dwi", asked.output) == ["31", "41"]
    assert "diffusion image" in (tmp_path / "rules.yaml.html").read_text()
    with pytest.raises(CadError, match="do not decide which series is diffusion"):
        import_source(tmp_path / "in", tmp_path / "out", rules)
    assert write_rules(tmp_path / "in", rules, {"diffusion": 32}) == {}
    matches = yaml.safe_load(rules.read_text())["diffusion"]
    assert [(match["description"], match.get("b_value")) for match in matches] == [
        ("^dwi A$", None),
        ("^dwi B$", 400.0),
    ]
    summary = import_source(tmp_path / "in", tmp_path / "out", rules)
    assert summary.failures == []
    names = {path.name.split("_", 1)[1] for path in (tmp_path / "out").rglob("*_dwi.nii.gz")}
    assert names == {f"acq-b{b_value}_dwi.nii.gz" for b_value in (50, 400, 800)}


@pytest.mark.parametrize("description", ["vibe", "vibe again"])
def test_flip_angles_that_a_man_has_twice_are_asked(tmp_path: Path, description: str):
    """Without the question, no T1 was measured: the rule was left out without a word."""
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    for number, flip in ((71, "2"), (72, "15")):
        write_series(
            folder / f"again{number}",
            flip_angle_values(float(flip), seed=number),
            number=number,
            description=description,
            FlipAngle=flip,
            RepetitionTime="3.85",
        )
    rules = tmp_path / "rules.yaml"
    undecided = write_rules(tmp_path / "in", rules)
    assert list(undecided) == ["vfa"]
    lines = [candidate.line for candidate in undecided["vfa"]]
    assert [re.findall(r"series (\d+)", line)[0] for line in lines] == ["3", "4", "71", "72"]
    with pytest.raises(CadError, match="do not decide which series is vfa"):
        import_source(tmp_path / "in", tmp_path / "out", rules)
    if description == "vibe":
        with pytest.raises(CadError, match="series 4, 71 have one description") as refused:
            write_rules(tmp_path / "in", rules, {"vfa": 4})
        assert "prefer" in refused.value.hint
        content = yaml.safe_load(rules.read_text())
        del content["undecided"]
        rules.write_text(yaml.safe_dump({**content, "prefer": "last"}))
    else:
        assert write_rules(tmp_path / "in", rules, {"vfa": 71}) == {}
    summary = import_source(tmp_path / "in", tmp_path / "out", rules)
    assert summary.failures == []
    sidecars = sorted((tmp_path / "out").rglob("*VFA*.json"))
    assert [json.loads(path.read_text())["SeriesNumber"] for path in sidecars] == [71, 72]


def test_two_images_in_the_series_of_one_rule_are_asked(tmp_path: Path):
    """The written rules are tried on every study, as an import would choose its series."""
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    kind = ["DERIVED", "PRIMARY", "ADC"]
    again = {"number": 2, "description": "adc", "prefix": "echo2-", "ImageType": kind}
    write_series(folder / "adc", adc_values(5), EchoTime="202", **again)
    rules = tmp_path / "rules.yaml"
    undecided = write_rules(tmp_path / "in", rules)
    assert [candidate.line.partition(":")[0] for candidate in undecided["adc"]] == [
        "series 2 'adc'"
    ]
    with pytest.raises(CadError, match="do not decide which series is adc"):
        import_source(tmp_path / "in", tmp_path / "out", rules)


def test_a_ktrans_map_among_the_series_gets_a_rule(tmp_path: Path):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    values = voxels(6) // 100
    write_series(folder / "ktrans", values, number=50, description="Ktrans_map")
    assert write_rules(tmp_path / "in", tmp_path / "rules.yaml") == {}
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert rules["ktrans"] == [{"description": "^Ktrans_map$"}]
    write_series(folder / "again", values, number=51, description="Ktrans_map")
    assert list(write_rules(tmp_path / "in", tmp_path / "rules.yaml")) == ["ktrans"]


def test_a_zip_of_two_patients_is_explained_by_the_names_of_archive_and_member(tmp_path: Path):
    folder = write_patient(tmp_path / "P-001", dce=False)
    other = sorted((folder / "adc").iterdir())[1]
    edit(other, PatientID="P-002")
    (tmp_path / "in").mkdir()
    archive = tmp_path / "in" / "study.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*.dcm")):
            packed.write(path, path.relative_to(tmp_path))
    for source in (archive, tmp_path / "in"):
        done = CliRunner().invoke(app, ["import", str(source), "--explain", "--json"])
        assert done.exit_code == 0, done.output
        problems = json.loads(done.stdout)["studies"][0]["problems"]
        named = [text for text in problems if "2 patients in one study" in text]
        assert named
        member = archive / "P-001" / "adc" / other.name
        assert named[0].startswith(f"file {member}: images or objects of 2 patients")
        assert "cad-explain" not in done.stdout
        assert "zip-" not in done.stdout


def test_files_beside_the_series_are_named_and_every_study_by_its_archive(tmp_path: Path):
    source = tmp_path / "in"
    (source / "ktrans").mkdir(parents=True)
    for patient in ("P-001", "P-002"):
        folder = write_patient(tmp_path / patient, patient, dce=False)
        with zipfile.ZipFile(source / f"{patient}.zip", "w") as packed:
            for path in sorted(folder.rglob("*.dcm")):
                packed.write(path, path.relative_to(tmp_path))
        (source / "ktrans" / f"{patient}-Ktrans.mhd").write_text("")
    (source / "findings.csv").write_text("ProxID,fid,pos\n")
    comment = (
        "#   findings.csv\n#   ktrans/{patient}-Ktrans.mhd (2 files)\n",
        "ktrans_file, rois, gland_file, lesion, detector, outlines, findings or scores:\n",
    )
    text = explain_source(source).as_text()
    assert re.findall("(?m)^study .*$", text) == ["study 1 in P-001.zip", "study 2 in P-002.zip"]
    assert all(line in text for line in comment)
    rules = tmp_path / "rules.yaml"
    assert write_rules(source, rules) == {}
    written = rules.read_text()
    assert all(line in written for line in comment)
    more = 'ktrans_file: ["ktrans/{patient}-Ktrans.mhd"]\nfindings: {file: findings.csv}\n'
    rules.write_text(written + more)
    seen = explain_source(source, rules).studies
    assert seen[1].files == ["P-002-Ktrans.mhd as ktrans", "findings.csv as findings"]
    assert [study.archive for study in seen] == ["P-001.zip", "P-002.zip"]


def test_a_decision_names_a_candidate(tmp_path: Path):
    write_patient(tmp_path / "in" / "P-001", "P-001")
    assert write_rules(tmp_path / "in", tmp_path / "rules.yaml") == {}
    with pytest.raises(CadError, match="series 99 could not be t2w"):
        write_rules(tmp_path / "in", tmp_path / "more.yaml", {"t2w": 99})
    assert not (tmp_path / "more.yaml").exists()
    with pytest.raises(CadError, match="series 1 could not be hbv"):
        write_rules(tmp_path / "in", tmp_path / "more.yaml", {"hbv": 1})
    assert decisions(["adc=12", "t2w=3"]) == {"adc": 12, "t2w": 3}
    for wrong in ("adc", "adc=x", "rois=3", "=3"):
        with pytest.raises(CadError, match="no ROLE=SERIES"):
            decisions([wrong])


def test_a_link_in_the_place_of_the_rules_file_or_its_page_stays(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    rules = tmp_path / "rules.yaml"
    for link in (rules, page_of(rules)):
        link.symlink_to(tmp_path / "nothing")
        with pytest.raises(CadError, match="is there already"):
            write_rules_confined(source, rules, {}, ExecutionOptions())
        assert link.is_symlink()
        assert not (tmp_path / "nothing").exists()
        link.unlink()


def test_no_rules_file_is_written_into_the_source(tmp_path: Path):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    before = sorted(folder.rglob("*"))
    with pytest.raises(CadError, match="the input itself, or lies in it"):
        write_rules_confined(tmp_path / "in", folder / "rules.yaml", {}, ExecutionOptions())
    assert sorted(folder.rglob("*")) == before


def test_what_the_command_writes_imports(tmp_path: Path):
    write_patient(tmp_path / "in" / "P-001", "P-001")
    rules = str(tmp_path / "rules.yaml")
    done = CliRunner().invoke(app, ["import", str(tmp_path / "in"), "--new-rules", rules])
    assert done.exit_code == 0, done.output
    assert "check every line" in done.output
    words = ["import", str(tmp_path / "in"), str(tmp_path / "out"), "--rules", rules]
    assert CliRunner().invoke(app, words).exit_code == 0


def test_two_series_of_one_role_are_shown_on_a_page(tmp_path: Path):
    folder = write_patient(tmp_path / "in" / "P-001", "P-001")
    write_series(
        folder / "other",
        adc_values(3),
        number=7,
        description="adc again",
        ImageType=["DERIVED", "PRIMARY", "ADC"],
        patient="P-001",
        study="study1",
    )
    rules = tmp_path / "rules.yaml"
    words = ["import", str(tmp_path / "in"), "--new-rules", str(rules)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    page = tmp_path / "rules.yaml.html"
    assert f"{page} shows them" in done.output.replace("\n", "")
    assert page.stat().st_mode & 0o077 == 0
    text = page.read_text()
    assert text.count("<figure>") == 2
    assert text.count("data:image/webp") == 6
    assert "http" not in text.replace("http-equiv", "")
    assert "P-001" not in text
    # A file that somebody changed stays, and so does the other one.
    written = {path: path.read_bytes() for path in (rules, page)}
    for path, other in ((rules, page), (page, rules)):
        path.write_bytes(written[path].replace(b"e", b"E", 1))
        changed = path.read_bytes()
        again = CliRunner().invoke(app, [*words, "--take", "adc=2"])
        assert again.exit_code != 0
        assert "is there already, and is not as --new-rules wrote it" in str(again.exception)
        assert (path.read_bytes(), other.read_bytes()) == (changed, written[other])
        path.write_bytes(written[path])
    # Unchanged files are replaced, and a decision needs no page.
    assert CliRunner().invoke(app, words).exit_code == 0
    assert page.read_bytes() == written[page]
    assert CliRunner().invoke(app, [*words, "--take", "adc=2"]).exit_code == 0
    assert not page.exists()
    assert "undecided" not in yaml.safe_load(rules.read_text())
