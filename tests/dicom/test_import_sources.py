"""Import: archives, wrong rules, hostile and damaged input, nobody named, the real studies."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from dicom_files import IDENTIFYING, edit, write_series
from import_cases import (
    RULES,
    SHAPE,
    only_failure,
    regions,
    table,
    voxels,
    write_patient,
    write_rois,
)

from cad.base.errors import CadError
from cad.base.settings import read_settings
from cad.dicom.into import sources
from cad.dicom.into.importer import import_source
from cad.dicom.into.regions import whole_numbers
from cad.dicom.into.rules import DynamicRule, FilesRule, ImportRules, Match
from cad.folders.cohort import read_cohort
from cad.folders.cohort.patients import Patients, patient_proof
from cad.mri.imaging.nifti import read_dynamic, read_volume, write_volume
from cad.mri.imaging.plausibility import RANGES


def pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            bundle.write(path, path.relative_to(folder))


def test_zip_archives(tmp_path, rules):
    source = write_patient(tmp_path / "in", dce=False)
    write_rois(source, 1)
    pack(source, tmp_path / "study.zip")
    out = tmp_path / "out"
    assert import_source(tmp_path / "study.zip", out, rules).added == ["sub-P001"]
    assert read_cohort(out).problems == []
    folder = tmp_path / "many"
    folder.mkdir()
    pack(write_patient(tmp_path / "p2", "P2", dce=False), folder / "b.zip")
    (folder / "broken.zip").write_bytes(b"PK no zip")
    summary = import_source(folder, out, rules)
    assert summary.added == ["sub-P2"]
    assert "not a readable zip archive" in only_failure(summary).problem


def test_a_message_on_a_file_of_an_archive_names_the_archive(tmp_path, rules):
    """A folder that is gone when the import ends would mean nothing to the user."""
    sound = write_patient(tmp_path / "in", dce=False)
    write_rois(sound, 1)
    (sound / "broken.dcm").write_bytes(bytes(128) + b"DICM" + b"\1" * 40)
    pack(sound, tmp_path / "one.zip")
    ambiguous = write_patient(tmp_path / "other", "P2", dce=False)
    write_series(ambiguous / "again", voxels(4), number=8, patient="P2", study="study1")
    pack(ambiguous, tmp_path / "two.zip")
    for name, words in (("one.zip", "broken.dcm"), ("two.zip", "2 images match")):
        summary = import_source(tmp_path / name, tmp_path / f"out-{name}", rules)
        texts = [str(failure) for failure in summary.failures]
        assert any(f"{tmp_path / name}" in text and words in text for text in texts), texts
        assert not any("zip-" in text for text in texts)


@pytest.mark.parametrize(
    "name", ["../evil.dcm", "a/../../evil.dcm", "/evil.dcm", "C:\\evil.dcm", "..\\evil"]
)
def test_archives_that_climb_out(tmp_path, rules, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as bundle:
        bundle.writestr("ok.dcm", "x")
        bundle.writestr(name, "evil")
    error = only_failure(import_source(tmp_path / "x.zip", tmp_path / "out", rules))
    assert "outside its folder" in error.problem
    assert not list(tmp_path.rglob("*evil*"))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [("MAX_MEMBERS", 2, "3 files, more than"), ("MAX_BYTES", 29, "would become 30")],
)
def test_archives_of_too_many_files_or_bytes(tmp_path, rules, monkeypatch, limit, most, words):
    """At the limit an archive is taken (its files are no images); beyond it nothing is written."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as bundle:
        for number in range(3):
            bundle.writestr(f"{number}.dcm", bytes(10))
    monkeypatch.setattr(sources, limit, most)
    error = only_failure(import_source(tmp_path / "x.zip", tmp_path / "out", rules))
    assert words in error.problem
    monkeypatch.setattr(sources, limit, most + 1)
    taken = import_source(tmp_path / "x.zip", tmp_path / "out", rules)
    assert not any(words in str(failure) for failure in taken.failures)


def test_zip_bombs_links_and_secrets(tmp_path, rules):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("zeros.dcm", bytes(50_000_000))
    error = only_failure(import_source(tmp_path / "bomb.zip", tmp_path / "out", rules))
    assert "zip bomb" in error.problem
    link = zipfile.ZipInfo("link.dcm")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as bundle:
        bundle.writestr(link, "/etc/passwd")
    error = only_failure(import_source(tmp_path / "link.zip", tmp_path / "out", rules))
    assert "is a link" in error.problem


def test_sources_and_rules_that_are_wrong(tmp_path, rules):
    with pytest.raises(CadError, match="no such folder or archive"):
        import_source(tmp_path / "nothing", tmp_path / "out", rules)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CadError, match="no DICOM image found"):
        import_source(tmp_path / "empty", tmp_path / "out", rules)
    for text, words in (
        ("name: x\nt2: []\n", "unknown key t2; did you mean 't2w'"),
        ("name: x\nt2w: [{descripton: a}]\n", "unknown key t2w.0.descripton"),
        ("name: x\nt2w: [{description: '['}]\n", "not a regular expression"),
        ("name: x\nt2w: [{}]\n", "would accept every series"),
        ("name: x\nrois: ../x\n", "a file name without folders"),
        ("name: x\ndce: {match: [{description: a}], clock: sun}\n", "dce.clock"),
    ):
        rules.write_text(text)
        with pytest.raises(CadError, match="(?i)" + words.replace("[", r"\[")):
            read_settings(ImportRules, rules)


def test_no_identifying_value_is_written_or_said(tmp_path, rules):
    """Names, birth dates, ids and free text of the source are in no file, no name, no message."""
    source = write_patient(tmp_path / "in", "MRN-99381", dce=True)
    write_rois(source, 1, scores="MRN-99381,1,r1,likert5,4\n")
    for path in source.rglob("*.dcm"):
        edit(path, PatientComments="<script>alert('Gravenstein')</script>")
    rules.write_text(RULES.replace("labels: id", "labels: pseudonym"))
    out = tmp_path / "out"
    summary = import_source(source, out, rules)
    assert summary.failures == []
    (study,) = read_cohort(out).studies()
    assert study.study_id.startswith("sub-P")
    secrets = ["MRN-99381", "MRN99381", "alert(", "20240307", "101112"]
    secrets += [part for value in IDENTIFYING.values() for part in value.split("^")]
    seen = [summary.as_text(), json.dumps(summary.as_dict())]
    for path in (p for p in out.rglob("*")):
        seen.append(str(path.relative_to(out)))
        if path.is_file():
            content = path.read_bytes()
            seen.append(content.decode("latin-1"))
            if path.suffix == ".gz":
                seen.append(gzip.decompress(content).decode("latin-1"))
    for text in seen:
        for secret in secrets:
            assert secret.lower() not in text.lower(), secret
    key = out / "sourcedata/pseudonym.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert import_source(source, out, rules).unchanged == [study.study_id]
    other = tmp_path / "other"
    assert import_source(source, other, rules).added != [study.study_id]
    secret = key.read_bytes()
    for changed in (b"", secret[:7], b"0" * 32):
        key.write_bytes(changed)
        with pytest.raises(CadError, match="not the key that the pseudonyms") as error:
            Patients(out, "pseudonym", set()).participant("MRN-1")
        assert error.value.file == str(key)
        with pytest.raises(CadError, match="not the key that the pseudonyms"):
            patient_proof(out)
    key.write_bytes(secret)
    assert Patients(out, "pseudonym", set()).participant("MRN-99381") == study.study_id


def test_a_cohort_with_a_simulated_study_is_marked_and_stays_so(tmp_path, rules):
    real, made = write_patient(tmp_path / "a", "P1"), write_patient(tmp_path / "b", "P2")
    out = tmp_path / "out"
    import_source(real, out, rules)
    assert not read_cohort(out).simulated
    import_source(made, out, rules)
    for path in made.rglob("*.dcm"):
        edit(path, Manufacturer="cad simulate")
    # As after an import by a version that did not look.
    assert import_source(made, out, rules).updated == ["sub-P2"]
    assert read_cohort(out).simulated
    write_rois(real, 1)
    assert import_source(real, out, rules).updated == ["sub-P1"]
    assert read_cohort(out).simulated
    summary = import_source(made, tmp_path / "other", rules)
    assert "sub-P2: simulated, as its DICOM files say" in summary.notes
    assert read_cohort(tmp_path / "other").simulated


def test_a_cohort_holds_simulated_men_or_real_men(tmp_path, rules):
    """A cohort is simulated as a whole, and there a model of simulated men decides."""
    real, made = write_patient(tmp_path / "a", "P1"), write_patient(tmp_path / "b", "P2")
    for path in made.rglob("*.dcm"):
        edit(path, Manufacturer="cad simulate")
    for first, second, words in (
        (real, made, "the patient is simulated, and the cohort holds real patients"),
        (made, real, "the patient is real, and the cohort holds simulated patients"),
    ):
        out = tmp_path / f"cohort-of-{first.name}"
        import_source(first, out, rules)
        (error,) = import_source(second, out, rules).failures
        assert error.problem == words
        assert "a cohort of their own" in error.hint
        assert read_cohort(out).simulated == (first == made)
        assert len(read_cohort(out).participants) == 1


def test_a_cut_off_file_fails_its_own_study(tmp_path, rules):
    source = tmp_path / "in"
    write_patient(source / "P1", "P1", dce=False)
    path = next((source / "P1/t2").iterdir())
    path.write_bytes(path.read_bytes()[:300])
    write_patient(source / "P2", "P2", dce=False)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P2"]
    assert [f.problem.split(":")[0] for f in summary.failures] == [
        "damaged DICOM header",
        "series 1 't2_tse_tra', flip 150 may be incomplete",
    ]


@pytest.mark.reference
def test_the_real_studies(real_import, counted):
    """PROSTATEx by its own rules: what its README says is what the cohort holds."""
    out, summary = real_import
    assert summary["failures"] == []
    assert summary["added"] == ["sub-ProstateX0000", "sub-ProstateX0218"]
    cohort = read_cohort(out)
    assert cohort.problems == []
    rois = table(out, "rois").to_dict("split")["data"]
    assert rois[0] == ["sub-ProstateX0000", "1", "1", "PZ", "malignant", "3"]
    assert [row[1:3] for row in rois[1:]] == [[str(n), str(n)] for n in (1, 2, 3, 4)]
    labels = read_volume(out / "sub-ProstateX0218/masks/sub-ProstateX0218_rois.nii.gz").array
    assert [int((labels == n).sum()) for n in (1, 2, 3, 4)] == [227] * 4
    lesion = read_volume(out / "sub-ProstateX0000/masks/sub-ProstateX0000_rois.nii.gz").array
    assert (int((lesion == 1).sum()), int(lesion.max())) == (427, 1)
    assert len(cohort.scores) == 16
    # The b = 0/800 map, in which the bladder has the diffusion coefficient of free water.
    adc = read_volume(out / "sub-ProstateX0218/dwi/sub-ProstateX0218_ADC.nii.gz")
    assert adc.shape == (20, 104, 128)
    dynamic = read_dynamic(out / "sub-ProstateX0218/perf/sub-ProstateX0218_dce.nii.gz")
    assert dynamic.frames.shape == (70, 20, 160, 160)
    assert dynamic.times[-1] == pytest.approx(290.9)
    assert not (out / "sub-ProstateX0000/perf").exists()
    counted(14, "PROSTATEx README, imported cohort")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("t2ww: [{description: x}]", "unknown key t2ww; did you mean 't2w'?"),
        ("hbv: [{descripton: x}]", "unknown key hbv.0.descripton; did you mean 'description'?"),
        ("files: {study: x, lesions: [y]}", "unknown key files.lesions; did you mean 'lesion'?"),
        ("findings: {radios: 3}", "unknown key findings.radios; did you mean 'radius'?"),
    ],
)
def test_misspelt_keys_get_a_suggestion(tmp_path, rules, line, says):
    rules.write_text(RULES + line + "\n")
    with pytest.raises(CadError) as caught:
        import_source(write_patient(tmp_path / "in"), tmp_path / "out", rules)
    assert says in caught.value.problem


def test_repeats_by_preference(tmp_path, rules):
    """A repeated T2: refused, or the last, the first or the largest."""
    source = write_patient(tmp_path / "in")
    write_series(source / "again", voxels(5), number=7, AcquisitionTime="103000")
    big = np.repeat(voxels(6), 2, axis=2)
    write_series(source / "big", big, number=8, AcquisitionTime="102000")
    assert "set prefer: last" in only_failure(import_source(source, tmp_path / "x", rules)).hint
    text = rules.read_text()
    for prefer, wanted in (("last", voxels(5)), ("first", voxels(1)), ("largest", big)):
        rules.write_text(text + f"prefer: {prefer}\n")
        out = tmp_path / prefer
        summary = import_source(source, out, rules)
        assert summary.failures == []
        found = read_volume(out / "sub-P001/anat/sub-P001_T2w.nii.gz")
        assert found.array.shape == wanted.shape
        assert (found.array == wanted).all()
        assert any(f"3 images, the {prefer} is taken" in note for note in summary.notes)


def test_directions_become_their_trace(tmp_path, rules):
    """Three directions at one b-value: the geometric mean, 200 = (100 x 200 x 400)^(1/3)."""
    source = write_patient(tmp_path / "in")
    for index, value in enumerate((100, 200, 400)):
        array = np.full(SHAPE, value, np.uint16)
        array[0] += 1
        gradient = [float(index == axis) for axis in range(3)]
        write_series(
            source / "dwi",
            array,
            number=12,
            description="dwi",
            prefix=f"g{index}-",
            DiffusionBValue=800.0,
            DiffusionGradientOrientation=gradient,
        )
    zero = np.full(SHAPE, 900, np.uint16)
    zero[0] += 1
    write_series(source / "b0", zero, number=13, description="dwi", DiffusionBValue=0.0)
    rules.write_text(RULES + "diffusion: [{description: ^dwi}]\n")
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    found = read_volume(tmp_path / "out/sub-P001/dwi/sub-P001_acq-b800_dwi.nii.gz")
    np.testing.assert_allclose(found.array[1:], 200, rtol=1e-6)
    assert any("geometric mean of 3 images of one series (trace)" in n for n in summary.notes)


@pytest.mark.parametrize(("maker", "complete"), [("TOSHIBA", True), ("SIEMENS", False)])
def test_a_b_of_zero_that_its_maker_does_not_state(tmp_path, rules, maker, complete):
    """Toshiba gives b only where it is not 0; of others such an image may be anything."""
    source = write_patient(tmp_path / "in")
    for index, b_value in enumerate((None, 800.0)):
        tags = {"Manufacturer": maker} | ({"DiffusionBValue": b_value} if b_value else {})
        write_series(
            source / "dwi", voxels(index), number=12, description="dwi", prefix=f"{index}-", **tags
        )
    rules.write_text(RULES + "diffusion: [{description: ^dwi}]\n")
    summary = import_source(source, tmp_path / "out", rules)
    if not complete:
        assert "has no b-value" in only_failure(summary).problem
        return
    assert summary.failures == []
    found = read_volume(tmp_path / "out/sub-P001/dwi/sub-P001_acq-b0_dwi.nii.gz")
    assert (found.array == voxels(0)).all()


def test_every_key_stands_on_its_page(repository):
    """Rules in docs/import.md, those of cohorts of files in the shipped rules."""
    page = (repository / "docs/import.md").read_text(encoding="utf-8")
    keys = [*(set(ImportRules.model_fields) - {"dce"}), *Match.model_fields]
    keys += [f"dce.{key}" for key in DynamicRule.model_fields]
    assert [key for key in keys if f"`{key}`" not in page] == []
    assert [name for name in RANGES if f"`{name}`" not in page] == []
    shipped = "".join(p.read_text() for p in (repository / "configs/import").glob("*.yaml"))
    shipped += (repository / "docs/public-data.md").read_text(encoding="utf-8")
    unsaid = {"patient_column", "study_column", "grade_column"}  # their defaults are PI-CAI's
    assert [k for k in FilesRule.model_fields if k not in unsaid and k not in shipped] == []


def test_links_out_of_the_source_are_named(tmp_path, rules):
    """The process that reads a source can open nothing else, so such links cannot be followed."""
    source = tmp_path / "in"
    study = write_patient(source, dce=False)
    write_rois(study, 1)
    elsewhere = write_patient(tmp_path / "elsewhere", "P2", dce=False)
    pack(elsewhere, tmp_path / "p2.zip")
    (source / "p2.zip").symlink_to(tmp_path / "p2.zip")
    (source / "folder").symlink_to(elsewhere)
    inside = next(study.rglob("*.dcm"))
    (source / "again").symlink_to(inside.parent)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"]
    assert summary.failures == []
    left_out = sorted(note for note in summary.notes if note.startswith("left out"))
    assert [note.split(" is ")[0] for note in left_out] == ["left out: folder", "left out: p2.zip"]
    assert all("a link that leads out of the source; copy" in note for note in left_out)


def test_outlines_beside_a_zip_archive_are_read_as_beside_a_folder(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES + "outlines: {file: ['masks/{patient}-{roi}.nii.gz']}\n")
    source = tmp_path / "in"
    pack_of = write_patient(tmp_path / "P1", "P1", dce=False)
    (source / "masks").mkdir(parents=True)
    pack(pack_of, source / "p1.zip")
    write_volume(source / "masks" / "P1-a.nii.gz", regions(1))
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    assert table(tmp_path / "out", "rois")["roi_id"].tolist() == ["a"]


def test_a_table_that_is_a_link_out_of_the_source_is_not_read(tmp_path, rules):
    source = tmp_path / "in"
    study = write_patient(source, dce=False)
    write_rois(study, 1)
    theirs = tmp_path / "theirs.csv"
    theirs.write_text("patient_id,roi_id,reader_id,scale,score\nP-001,1,r9,likert5,5\n")
    (source / "scores.csv").symlink_to(theirs)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.added == ["sub-P001"]
    assert "r9" not in (tmp_path / "out" / "scores.tsv").read_text()
    only_links = tmp_path / "links"
    only_links.mkdir()
    (only_links / "study").symlink_to(study)
    with pytest.raises(CadError, match="no DICOM image found") as caught:
        import_source(only_links, tmp_path / "nothing", rules)
    assert "study is a link that leads out of the source" in caught.value.hint


def test_a_study_that_is_in_the_source_twice_keeps_its_scores(tmp_path, rules):
    source = tmp_path / "in"
    study = write_patient(source / "P-001", dce=False)
    write_rois(study, 1)
    table_of_scores = "patient_id,roi_id,reader_id,scale,score\nP-001,1,r1,likert5,4\n"
    (source / "scores.csv").write_text(table_of_scores)
    single = import_source(source, tmp_path / "single", rules)
    assert single.added == ["sub-P001"]
    pack(study, source / "again.zip")
    twice = import_source(source, tmp_path / "twice", rules)
    assert twice.failures == []
    assert twice.added == ["sub-P001"]
    scores = [(tmp_path / name / "scores.tsv").read_text() for name in ("single", "twice")]
    assert scores[0] == scores[1]
    assert "\t4" in scores[0]


def test_a_label_that_does_not_fit_is_refused(tmp_path):
    labels = regions(1)
    wide = labels.array.astype(np.uint32)
    wide[wide == 1] = 65537
    write_volume(tmp_path / "labels.nii.gz", labels.with_array(wide))
    with pytest.raises(CadError, match="a label of 65537, at most 65535 is read"):
        whole_numbers(tmp_path / "labels.nii.gz")
    wide[wide == 65537] = 65535
    write_volume(tmp_path / "labels.nii.gz", labels.with_array(wide))
    assert whole_numbers(tmp_path / "labels.nii.gz").array.max() == 65535


def test_a_link_within_a_source_that_is_a_link_itself_is_read(tmp_path, rules):
    """The source lies below a link, and a file of it is a link to another file of it."""
    real = tmp_path / "disk" / "in"
    study = write_patient(real, dce=False)
    write_volume(real / "drawn.nii.gz", regions(1))
    (study / "rois.nii.gz").symlink_to(real / "drawn.nii.gz")
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    source = tmp_path / "data" / "in"
    summary = import_source(source, tmp_path / "out", rules)
    assert not [note for note in summary.notes if note.startswith("left out")]
    assert summary.added == ["sub-P001"]
    assert summary.awaiting == []
    assert table(tmp_path / "out", "rois")["roi_id"].tolist() == ["1"]


def test_masks_in_a_linked_folder_out_of_the_source_are_not_read(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES + "outlines: {file: ['masks/{patient}-{roi}.nii.gz']}\n")
    source = tmp_path / "in"
    write_patient(source, dce=False)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    write_volume(theirs / "P-001-a.nii.gz", regions(1))
    (source / "masks").symlink_to(theirs)
    summary = import_source(source, tmp_path / "out", rules)
    assert summary.failures == []
    assert summary.awaiting == ["sub-P001"]
    assert any("masks is a link that leads out of the source" in note for note in summary.notes)
