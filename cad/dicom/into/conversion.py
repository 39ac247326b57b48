"""Convert one DICOM study into a folder of NIfTI files, by the rules of its site."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cad.base.errors import CadError, located
from cad.base.files import JsonObject
from cad.base.reading import reading
from cad.base.terms.modality import KTRANS, MODALITIES, Modality
from cad.dicom.into.regions import (
    drawn_series,
    files_of,
    find_regions,
    first_of,
    gland_mask,
    outlined_gland,
)
from cad.dicom.into.rules import DynamicRule, ImportRules, Match
from cad.dicom.into.sources import SourceStudy, by_series
from cad.dicom.into.unchanged import changed_since, require_equal, require_same
from cad.mri.imaging import nifti
from cad.mri.imaging.diffusion import HIGH_B, trace
from cad.mri.imaging.displacement import NOTED_FROM_MM
from cad.mri.imaging.displacement_search import with_displacements
from cad.mri.imaging.frames import Frame, read_header
from cad.mri.imaging.makers import maker
from cad.mri.imaging.phases import order_phases, read_phases
from cad.mri.imaging.pixels import PixelReader, read_stack
from cad.mri.imaging.plausibility import require_plausible
from cad.mri.imaging.stacks import Stack, stacks_of
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import diffusion_path, image_path, read_study, vfa_path
from cad.mri.imaging.units import in_unit
from cad.mri.imaging.vendor import CSA_TAGS, phase_encoding_positive
from cad.mri.imaging.volume import Volume

_LISTED = 8  # most images that a message lists


@dataclass
class Converted:
    """Hold the regions, scores and notes that the conversion of one study gives.

    Parameters
    ----------
    rois : list of Roi
        Regions of the label map that was written; empty where none was written.
    scores : list of dict
        The readers' scores of these regions: dicts with the keys ``patient_id``, ``roi_id``,
        ``reader_id``, ``scale`` and ``score``.
    notes : list of str
        Messages for the user: which series was taken, and which were left out.
    """

    rois: list[Roi] = field(default_factory=list)
    scores: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def convert(
    study: SourceStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
) -> Converted:
    """Write the images, masks and sidecars of a study that its cohort folder does not have yet.

    A sidecar is a JSON file beside an image; it states how the image was acquired.

    Parameters
    ----------
    study : SourceStudy
        The study in the source: its series, annotation objects and folders.
    study_id : str
        ``sub-XXX[_ses-YY]``, the stem of every file name.
    build : Path
        Folder to write into.
    have : Path or None
        The study's folder in the cohort, None for a new study. A file that exists there is not
        written again.
    rules : ImportRules
        The rules, which say which series is which image.

    Returns
    -------
    Converted
        ``rois`` holds entries only where a label map was written.

    Raises
    ------
    CadError
        When no series is the T2 image by the rules, or when several series match where one is
        wanted; in both cases the error lists the series. When a series or mask is damaged.
    """
    job = _Job(study, study_id, build, have, rules)
    job.images()
    job.masks()
    return job.done


def rival_images(study: SourceStudy, rules: ImportRules) -> dict[str, list[Stack]]:
    """Return the images among which :func:`convert` could not choose; no pixels are read.

    Parameters
    ----------
    study : SourceStudy
        The study in the source.
    rules : ImportRules
        The rules, which say which series is which image.

    Returns
    -------
    dict of str to list of Stack
        By role (``t2w``, ``adc``, ``hbv``, ``ktrans``, ``vfa``, ``diffusion``), the images of
        which the rules want one. A role about which nothing can be said, because its slices form
        no image, is left out.
    """
    # Nothing is written, so the study needs neither an id nor folders.
    job = _Job(study, study_id="", build=Path(), have=None, rules=rules)
    return job.rivals()


def read_back(
    build: Path,
    study_id: str,
    participant_id: str,
    rois: list[Roi],
    ranges: dict[str, tuple[float, float]],
) -> list[str]:
    """Read a converted study with all checks of later steps, and return notes on it.

    Parameters
    ----------
    build : Path
        The study's folder.
    study_id, participant_id : str
        Names of the study and of its patient in the cohort.
    rois : list of Roi
        The regions that the cohort's tables list for this study.
    ranges : dict
        For each statistic by name, the lowest and the highest value that the site's rules allow;
        other statistics have their usual ranges.

    Returns
    -------
    list of str
        Notes for the user, one sentence each: what is missing, which images are displaced
        against T2, and whose displacement could not be measured.

    Raises
    ------
    CadError
        When the study cannot be read, or is not plausible.
    """
    study = with_displacements(read_study(build, study_id, participant_id, rois))
    require_plausible(study, ranges)
    displaced = []
    for displacement in study.displacements:
        if displacement.size_mm >= NOTED_FROM_MM:  # less is smaller than a voxel
            displaced.append(displacement.sentence)
    unmeasured = [image.sentence for image in study.unmeasured]
    return [*study.missing_notes, *study.notes, *displaced, *unmeasured]


class _Job:
    """Hold the inputs that the steps of :func:`convert` share."""

    def __init__(
        self, study: SourceStudy, study_id: str, build: Path, have: Path | None, rules: ImportRules
    ) -> None:
        self.study = study
        self.study_id = study_id
        self.build = build
        self.have = have
        self.rules = rules
        left_out = [f"left out: {error.problem}" for error in study.unusable]
        self.done = Converted(notes=[*left_out, *study.person_notes])

    def images(self) -> None:
        """Write the images of every modality, and the flip-angle and diffusion images, to the build
        folder.

        An error is raised if no series is the T2 image by the rules, or if no series matches any
        rule.
        """
        written = {}  # by role, whether the source has such an image
        for modality in MODALITIES:
            if modality.dynamic:
                written[modality.name] = self._dynamic(modality)
            else:
                written[modality.name] = self._single(modality)
        # A file of Ktrans is used only where no DICOM series is the map.
        written["ktrans"] = written["ktrans"] or self._from_file(KTRANS)
        written["vfa"] = self._write_by_value("flip angle", "vfa", "flip_angle")
        written["diffusion"] = self._write_by_value("b-value", "diffusion", "b_value")
        # A site whose rules name no T2 image imports studies without one.
        if self.rules.t2w and not written["t2w"]:
            problem = f"no series is the T2 image by the rules; {self.study.listed()}"
            hint = "name it in the rules file; `cad import --explain` shows what matches"
            raise CadError(problem, file=self.study.top, hint=hint)
        if not any(written.values()):
            problem = f"no series matches the import rules; {self.study.listed()}"
            raise CadError(problem, file=self.study.top, hint="name its series in the rules file")

    def rivals(self) -> dict[str, list[Stack]]:
        """Return the images of :func:`rival_images`."""
        rivals: dict[str, list[Stack]] = defaultdict(list)
        for modality in MODALITIES:
            if modality.dynamic:  # all its series are taken, as phases
                continue
            # Slices that form no image raise an error. It is dropped here, because the import
            # itself reports it.
            with suppress(CadError):
                stacks, _ = self._matching(modality.name)
                if stacks and self._best(stacks) is None:
                    rivals[modality.name] = stacks
        for role, key in (("vfa", "flip_angle"), ("diffusion", "b_value")):
            by_value: dict[float, list[Stack]] = defaultdict(list)
            with suppress(CadError):  # as above
                for stack in self._accepted(self.rules.matches(role)):
                    by_value[getattr(stack.first, key)].append(stack)
            # One image is wanted for each flip angle and b-value.
            for stacks in by_value.values():
                if not self._of_one_acquisition(stacks, key) and self._best(stacks) is None:
                    rivals[role] += stacks
        return rivals

    def masks(self) -> None:
        """Write the masks of gland and vessel, and the label map of the regions.

        The regions come from a label map, a lesion map or annotation objects of the source.
        """
        vessel = self.study.beside(self.rules.vessel)
        vessel_target = image_path(self.build, self.study_id, "vessel")
        if vessel and not is_there(vessel_target, self.build, self.have):
            volume = nifti.read_image(vessel)
            nifti.write_volume(vessel_target, volume.with_array(volume.array != 0))
        self._gland()
        target = image_path(self.build, self.study_id, "rois")
        # DICOM objects are drawn on the grid of the T2 image, else on that of the ADC image.
        stacks, _ = self._matching("t2w")
        if not stacks:
            stacks, _ = self._matching("adc")
        reference = stacks[0] if stacks else None
        notes = self.done.notes
        # An existing label map is never made again, because its regions may have been scored.
        if self.have and is_there(target, self.build, self.have):
            # Faulty regions in the source do no harm here, because the cohort's regions stay.
            with suppress(CadError):
                regions = find_regions(self.study, self.rules, reference, notes=[])
                labels_in_cohort = nifti.read_label_map(self._in_cohort(target))
                if regions and not np.array_equal(regions.labels.array, labels_in_cohort.array):
                    notes.append("the source's regions are other than the cohort's, which stay")
            return
        regions = find_regions(self.study, self.rules, reference, notes)
        if regions is None:
            return
        nifti.write_volume(target, regions.labels)
        if regions.frame_uid:  # image files state none
            nifti.write_sidecar(target, {"FrameOfReferenceUID": regions.frame_uid})
        self.done.rois = regions.rois
        self.done.scores = list(regions.scores)

    def _gland(self) -> None:
        """Write the gland mask, drawn by a person or by any segmentation program."""
        rules = self.rules
        target = image_path(self.build, self.study_id, "gland")
        if is_there(target, self.build, self.have):
            return
        patient = self.study.patient_id
        path = self.study.beside(rules.gland)
        if path is None:
            path = first_of(self.study.tables, rules.gland_file, patient)
        if path is None and rules.outlines:
            path = outlined_gland(self.study.tables, patient, rules.outlines)
        # Without any of these masks, the zones together are the gland.
        zones_path = self.study.beside(rules.zones.file) if rules.zones else None
        mask = gland_mask(path, rules.gland_values, zones_path, rules.zones, self.done.notes)
        if mask is not None:
            nifti.write_volume(target, mask)

    def _matching(self, name: str) -> tuple[list[Stack], Match | None]:
        """Return the stacks that are accepted by a rule's first match with any, and this match.

        Without an accepted stack, the list is empty and the match is None.
        """
        for match in self.rules.matches(name):
            stacks = self._accepted((match,))
            if stacks:
                return stacks, match
        return [], None

    def _accepted(self, matches: tuple[Match, ...]) -> list[Stack]:
        """Return the images whose slices meet at least one of the matches."""
        slices = []
        for frame in self.study.slices:
            if any(match.accepts(frame) for match in matches):
                slices.append(frame)
        return stacks_by_series(slices)

    def _single(self, modality: Modality) -> bool:
        """Write the image of a modality that has one; return whether the source has such an image.

        An image that the cohort has stays. An error is raised if its source has changed.
        """
        stacks, match = self._matching(modality.name)
        if not stacks or match is None:
            return False
        series_with_masks = drawn_series(
            self.study.tables, self.study.patient_id, self.rules, modality.name, self.done.notes
        )
        stack = self._preferred(stacks, f"the rule for {modality.name}", series_with_masks)
        head = stack.first
        # At lower b-values, tissue with a long T2 stays bright, whether it is cancer or not
        # (PI-RADS v2.1 asks for b of at least 1400 s/mm2).
        if modality.name == "hbv" and head.b_value is not None and head.b_value < HIGH_B:
            problem = f"{stack} is no high-b image: b = {head.b_value:g}, at least {HIGH_B:g} s/mm2"
            hint = "name it under diffusion; the high-b image is then computed"
            raise CadError(problem, file=head.path.parent, hint=hint)
        target = image_path(self.build, self.study_id, modality.name)

        def image_in_unit() -> tuple[Volume, str]:
            return in_unit(read_stack(stack), modality, match.scale)

        # If masks were drawn on this series, the cohort's image must be of this series, too.
        if self._is_there(target, [stack], only=head.series_number == series_with_masks):
            self._require_same(target, [stack], made=lambda: image_in_unit()[0])
        else:
            entries = self._sidecar_entries([stack])
            image, unit_source = image_in_unit()
            nifti.write_volume(target, image)
            if modality.unit:
                entries |= {"Units": modality.unit, "UnitsSource": unit_source}
                self.done.notes.append(f"{modality.name} in {modality.unit}: {unit_source}")
            if modality.name == "hbv" and head.b_value is not None:
                entries["BValue"] = head.b_value
            nifti.write_sidecar(target, entries)
            self.done.notes.append(f"{modality.name} from series {head.series_number}")
            self._note_later_matches(modality.name, stacks, head.series_number)
        return True

    def _note_later_matches(self, name: str, stacks: list[Stack], taken: int | None) -> None:
        """Note for the user the series that only a later match of an image's rule accepts.

        The matches of a rule are tried in order. ``name`` is the image, ``stacks`` are those that
        the first successful match accepts, and ``taken`` is the number of the taken series. The
        user may want a series that a later match accepts.
        """
        first_numbers = {stack.first.series_number for stack in stacks}
        stacks_of_rule = self._accepted(self.rules.matches(name))
        all_numbers = {stack.first.series_number for stack in stacks_of_rule}
        later_numbers = sorted(str(number) for number in all_numbers - first_numbers)
        if later_numbers:
            self.done.notes.append(
                f"{name}: series {', '.join(later_numbers)} meet a later match of the rule and are "
                f"not taken; series {taken} meets an earlier one"
            )

    def _ktrans_file(self) -> Path | None:
        """Return the first file of the source that the rules name as the Ktrans map."""
        for folder in self.study.tables:
            for pattern in self.rules.ktrans_file:
                for _, path in files_of(folder, pattern, self.study.patient_id):
                    return path
        return None

    def _from_file(self, modality: Modality) -> bool:
        """Write the Ktrans map that the source has as an image file; return whether it has one."""
        path = self._ktrans_file()
        if path is None:
            return False
        target = image_path(self.build, self.study_id, modality.name)

        def map_in_unit() -> tuple[Volume, str]:
            with located(file=path):
                image, unit_source = in_unit(
                    nifti.read_image(path), modality, self.rules.ktrans_scale
                )
            return image.with_array(image.array.astype(np.float32)), unit_source

        if self.have is not None and is_there(target, self.build, self.have):
            image_in_cohort = self._in_cohort(target)
            if changed_since(image_in_cohort, [path]):
                require_same(image_in_cohort, lambda: map_in_unit()[0])
        else:
            image, unit_source = map_in_unit()
            nifti.write_volume(target, image)
            entries: JsonObject = {"Units": modality.unit, "UnitsSource": unit_source}
            # The NIfTI file itself names no study. It belongs to this study by its path.
            entries["StudyInstanceUID"] = self.study.uid
            nifti.write_sidecar(target, entries)
            self.done.notes.append(
                f"{modality.name} from its file, in {modality.unit}: {unit_source}"
            )
        return True

    def _in_cohort(self, target: Path) -> Path:
        """Return the path that a file of the build folder has, or would have, in the cohort."""
        if self.have is None:
            raise ValueError("a new study has no image in the cohort yet")
        return self.have / target.relative_to(self.build)

    def _is_there(self, target: Path, stacks: list[Stack], *, only: bool = True) -> bool:
        """Tell whether the cohort already has the image that would be written to ``target``.

        An error is raised if the source now has DICOM instances from which the cohort's image was
        not made. If ``only`` is false and the image was made from another series, this is no error:
        the cohort's image stays, and a note says so.
        """
        if self.have is None or not is_there(target, self.build, self.have):
            return False
        image = self._in_cohort(target)
        first = stacks[0].first
        entries = nifti.read_sidecar(image)
        uids_now = _uids_of_stacks(stacks)
        if not entries:
            raise CadError(
                "its sidecar, which says what it was made of, is gone",
                file=image,
                hint="bring the sidecar back, or remove the patient by cad cohort remove and "
                "import again",
            )
        with reading(image, "its sidecar lists no SOPInstanceUIDs", "remove the sidecar's entry"):
            # A sidecar without this list says nothing against the instances of now.
            uids_of_image = set(entries.get("SOPInstanceUIDs", uids_now))
        if uids_of_image.issuperset(uids_now):
            return True
        if not only and entries.get("SeriesInstanceUID") != first.series_uid:
            self.done.notes.append(
                f"{image.name} stays series {entries.get('SeriesNumber', '?')}; the rules take "
                f"series {first.series_number} now"
            )
            return True
        raise CadError(
            f"{len(uids_now - uids_of_image)} of the {len(uids_now)} instances that the source has "
            "now are not in it",
            file=image,
            hint="import into another cohort folder, or remove the patient first by cad cohort "
            "remove, with the scores that the cohort alone has",
        )

    def _is_to_compare(self, target: Path, stacks: list[Stack]) -> bool:
        """Tell whether an image of the cohort has to be compared with what its source gives now.

        It is compared if the source still has exactly the image's instances, and if one of their
        files may have changed since the image was made.
        """
        if self.have is None:
            return False
        image = self._in_cohort(target)
        entries = nifti.read_sidecar(image)
        # The image cannot be made again in two cases: it comes from another series, or from more
        # instances than the source still has.
        if set(entries.get("SOPInstanceUIDs", [])) != _uids_of_stacks(stacks):
            return False
        paths = []
        for stack in stacks:
            paths += [frame.path for frame in stack.slices]
        return changed_since(image, paths)

    def _require_same(self, target: Path, stacks: list[Stack], made: Callable[[], Volume]) -> None:
        """Raise an error if the source now gives other voxels for an image of the cohort.

        Only images whose instances (by SOPInstanceUID) are still the same are compared.
        """
        if self.have is not None and self._is_to_compare(target, stacks):
            require_same(self._in_cohort(target), made)

    def _require_same_phases(self, target: Path, stacks: list[Stack], rule: DynamicRule) -> None:
        """Raise an error if the source now gives other voxels for the cohort's dynamic series."""
        if self.have is None or not self._is_to_compare(target, stacks):
            return
        phases = order_phases(stacks, rule.clock, rule.time_pattern, rule.interval)
        now = read_phases(phases)
        upright_frames = []  # as a NIfTI file of the cohort stores them
        for frame in now.frames:
            upright_frames.append(now.grid.with_array(frame).upright().array)
        image = self._in_cohort(target)
        frames_in_cohort = nifti.read_dynamic(image).frames
        require_equal(image, had=frames_in_cohort, now=np.stack(upright_frames))

    def _preferred(self, stacks: list[Stack], what: str, drawn_on: int | None = None) -> Stack:
        """Return one of several images: that on which masks were drawn, else the preferred one.

        The rules say by ``prefer`` which image is preferred.
        """
        # A mask fits the image on which it was drawn. This image is therefore taken, even if the
        # site's rules prefer another one.
        drawn_stacks = [stack for stack in stacks if stack.first.series_number == drawn_on]
        if drawn_on is not None and len(stacks) > 1 and len(drawn_stacks) == 1:
            self.done.notes.append(
                f"{what}: {len(stacks)} images, series {drawn_on} is taken: masks were drawn on it"
            )
            return drawn_stacks[0]
        if drawn_on is not None and not drawn_stacks:
            self.done.notes.append(
                f"{what}: masks were drawn on series {drawn_on}, which no match accepts"
            )
        if len(stacks) == 1:
            return stacks[0]
        best = self._best(stacks)
        if best is None:
            raise CadError(
                f"{len(stacks)} images match {what}: {'; '.join(map(str, stacks[:_LISTED]))}",
                file=self.study.top,
                hint="make the rule narrower, list the wanted one first, or set prefer: last, "
                "first or largest",
            )
        self.done.notes.append(
            f"{what}: {len(stacks)} images, the {self.rules.prefer} is taken: "
            f"series {best.first.series_number}"
        )
        return best

    def _best(self, stacks: list[Stack]) -> Stack | None:
        """Return the only image, or the one that the rules prefer; None if they prefer none."""
        if len(stacks) == 1:
            return stacks[0]
        prefer = self.rules.prefer
        if prefer is None:
            return None
        highest_rank = max(_rank(stack, prefer) for stack in stacks)
        best_stacks = [stack for stack in stacks if _rank(stack, prefer) == highest_rank]
        # Two images of the highest rank, such as two of one size, leave the choice open.
        return best_stacks[0] if len(best_stacks) == 1 else None

    def _dynamic(self, modality: Modality) -> bool:
        """Write the dynamic series with the times of its phases; return whether the source has one.

        A series that the cohort has stays. An error is raised if its source has changed.
        """
        rule = self.rules.dce
        if rule is None:
            return False
        stacks = self._accepted(rule.match)
        if not stacks:
            return False
        target = image_path(self.build, self.study_id, modality.name)
        if self._is_there(target, stacks):
            self._require_same_phases(target, stacks, rule)
            return True
        if len(stacks) == 1:
            raise CadError(
                f"the dynamic series has one phase only: {stacks[0]}", file=self.study.top
            )
        phases = order_phases(stacks, rule.clock, rule.time_pattern, rule.interval)
        stacks_by_time = [stack for _, stack in phases.timed]
        entries = self._sidecar_entries(stacks_by_time)
        # Phases may lie in several series or all in one: each series is listed once, in order.
        series_uids = dict.fromkeys(stack.first.series_uid for stack in stacks_by_time)
        entries["SeriesInstanceUIDs"] = list(series_uids)
        entries["VolumeTimingClock"] = phases.clock
        nifti.write_dynamic(target, read_phases(phases), entries)
        seconds_between = np.diff(phases.times)
        self.done.notes += [f"dce: {note}" for note in phases.notes]
        self.done.notes.append(
            f"dce from {len(phases.timed)} phases, {phases.clock} clock, steps "
            f"{seconds_between.min():.3g} to {seconds_between.max():.3g} s"
        )
        return True

    def _write_by_value(self, what: str, role: str, key: str) -> bool:
        """Write one image for each flip angle or b-value; return whether there is any.

        ``what`` is the quantity in messages, ``role`` is ``vfa`` or ``diffusion``, and ``key`` is
        the field of a frame: ``flip_angle`` or ``b_value``.
        """
        stacks = self._accepted(self.rules.matches(role))
        by_value: dict[float, list[Stack]] = defaultdict(list)
        for stack in stacks:
            value = getattr(stack.first, key)
            if value is None:
                raise CadError(f"{stack} has no {what}", file=stack.first.path.parent)
            by_value[value].append(stack)
        for value in sorted(by_value):
            chosen = self._chosen(by_value[value], f"{what} {value:g}", key)
            if key == "flip_angle":
                target = self._flip_path(value)
            else:
                target = diffusion_path(self.build, self.study_id, value)
            if self._is_there(target, chosen):
                self._require_same(target, chosen, partial(_signal, chosen))
                continue
            entries = self._sidecar_entries(chosen)
            image = _signal(chosen)
            if key == "b_value":
                if len(chosen) > 1:
                    self.done.notes.append(
                        f"b = {value:g} s/mm2: geometric mean of {len(chosen)} images of one "
                        "series (trace)"
                    )
                entries["BValue"] = value
                nifti.write_gradients(target, value)
            nifti.write_volume(target, image)
            nifti.write_sidecar(target, entries)
        return bool(stacks)

    def _flip_path(self, angle: float) -> Path:
        """Return the path of the image of a flip angle: its path in the cohort, or a free one."""
        for index in count(1):
            target = vfa_path(self.build, self.study_id, index)
            if is_there(target, self.build, self.have) and self.have:
                sidecar = nifti.read_sidecar(self.have / target.relative_to(self.build))
                if sidecar.get("FlipAngle") == angle:
                    break
            # Not in the cohort; but this import may have written it for another angle.
            elif not target.exists():
                break
        return target

    def _chosen(self, stacks: list[Stack], what: str, key: str) -> list[Stack]:
        """Return the images that are used for one flip angle or b-value.

        This is one image, or for a b-value perhaps an image for each direction of the gradient.
        """
        one_acquisition = self._of_one_acquisition(stacks, key)
        return one_acquisition or [self._preferred(stacks, what)]

    def _of_one_acquisition(self, stacks: list[Stack], key: str) -> list[Stack]:
        """Return those of a b-value's images that one acquisition made; empty if there are several.

        Images of a flip angle always are of several acquisitions.
        """
        if key != "b_value":
            return []
        # A trace image that the scanner made is taken rather than a mean over the directions.
        trace_images = [stack for stack in stacks if "TRACEW" in stack.first.image_type]
        if len(trace_images) == 1:
            return trace_images
        # Images of several series are not averaged: they are repeated acquisitions, and not
        # directions of the gradient.
        if len({stack.first.series_uid for stack in stacks}) == 1:
            return stacks
        return []

    def _sidecar_entries(self, stacks: list[Stack]) -> dict[str, Any]:
        """Return a sidecar's entries: acquisition (SI units, degrees), and UIDs for DICOM output.

        An error is raised for a series that may be incomplete.
        """
        for stack in stacks:
            # A folder with an unreadable file may lack one of this series' images.
            if any(item.path.parent in self.study.damaged for item in stack.slices):
                problem = f"{stack} may be incomplete: a file beside its slices could not be read"
                raise CadError(
                    problem, file=stack.first.path.parent, hint="export the series again"
                )
            note = (
                f"series {stack.first.series_number}: InStackPositionNumber (0020,9057) gives the "
                "slices another order than ImagePositionPatient (0020,0032); the positions count"
            )
            if stack.order_of_numbers is not None and note not in self.done.notes:
                self.done.notes.append(note)
        first_stack = stacks[0]
        head = first_stack.first
        uids = [item.sop_uid for item in first_stack.slices]
        # If the image was computed from several stacks, none of its slices is a DICOM instance. The
        # instances of all these stacks are then listed.
        if len(stacks) > 1:
            uids = sorted(_uids_of_stacks(stacks))
        # Frames of an enhanced object share the UID of the object. Frame numbers, which begin
        # with 1, distinguish them (PS3.3 10.3, Referenced Frame Number).
        frame_numbers = None
        if len(set(uids)) < len(uids):
            frame_numbers = [item.index + 1 for item in first_stack.slices]
        entries = {
            "RepetitionTime": head.repetition_time,
            # DICOM states the echo time in ms (PS3.3 C.8.3.1), BIDS in s.
            "EchoTime": None if head.echo_time is None else round(head.echo_time / 1000, 9),
            "FlipAngle": head.flip_angle,
            "MagneticFieldStrength": head.field_strength,
            **_phase_encoding_entry(head),
            # Free text, such as names of models and stations, is left out, because it may name a
            # person.
            "Manufacturer": maker(head.manufacturer) or None,
            # A date can identify a person. It is therefore stored only if the patient's id is
            # stored, too.
            "StudyDate": _day(head.study_date) if self.rules.labels == "id" else None,
            "SeriesNumber": head.series_number,
            "StudyInstanceUID": head.study_uid,
            "SeriesInstanceUID": head.series_uid,
            "FrameOfReferenceUID": head.frame_uid or None,
            "SOPClassUID": head.sop_class,
            "SOPInstanceUIDs": uids,
            "SourceFrames": frame_numbers,
            "InstanceNumbers": [item.instance_number for item in first_stack.slices],
            "SourcePatientID": self.study.patient_id if self.rules.labels == "id" else None,
        }
        return {key: value for key, value in entries.items() if value is not None}


def _signal(stacks: list[Stack]) -> Volume:
    """Read the image of one flip angle or b-value; for several directions, their trace.

    Each image is read as the scanner's signal, because fits compare these images with each other.
    Values for display may be scaled differently in each series.
    """
    reader = PixelReader()
    images = [read_stack(stack, precise=True, reader=reader) for stack in stacks]
    return trace(images) if len(images) > 1 else images[0]


def is_there(target: Path, build: Path, have: Path | None) -> bool:
    """Tell whether the cohort already has the file that a study's build folder would get.

    Parameters
    ----------
    target : Path
        The file's path in ``build``.
    build, have : Path
        The folder in which the study is built, and its folder in the cohort. ``have`` is None for a
        new study.

    Returns
    -------
    bool
        True if the study is in the cohort and has a file of this name; False for a new study.
    """
    return have is not None and (have / target.relative_to(build)).is_file()


def _phase_encoding_entry(head: Frame) -> dict[str, str]:
    """Return the sidecar's entry on the direction of phase encoding; {} if unknown.

    The entry names an axis of the NIfTI file.

    Rows of the image run along the file's i axis, columns along its j axis. Only Siemens' private
    header says in which of the two senses the phase is encoded.
    """
    axis = {"ROW": "i", "COL": "j", "COLUMN": "j"}.get(head.phase_encoding.upper())
    if axis is None:  # the header states no direction
        return {}
    if maker(head.manufacturer) != "Siemens":
        return {"PhaseEncodingAxis": axis}
    positive = phase_encoding_positive(read_header(head.path, CSA_TAGS))
    if positive is None:
        return {"PhaseEncodingAxis": axis}
    return {"PhaseEncodingDirection": axis if positive else f"{axis}-"}


def _uids_of_stacks(stacks: list[Stack]) -> set[str]:
    """Return the SOPInstanceUIDs of all slices of some stacks."""
    uids = set()
    for stack in stacks:
        uids |= {frame.sop_uid for frame in stack.slices}
    return uids


def _day(stated: str) -> str | None:
    """Return the day of a frame's ``study_date`` in ISO form; None if there is none."""
    day = stated[:8]  # YYYYMMDD; a time may follow
    return f"{day[:4]}-{day[4:6]}-{day[6:]}" if day else None


def stacks_by_series(frames: Iterable[Frame]) -> list[Stack]:
    """Group the frames of any number of series into images.

    Parameters
    ----------
    frames : iterable of Frame
        Headers of slices.

    Returns
    -------
    list of Stack
        One for each 3-D image: frames of one series with equal plane, time point, b-value, flip
        angle and echo time. Sorted by series number.
    """
    stacks = []
    for series in by_series(frames):
        stacks += stacks_of(series)
    return sorted(stacks, key=lambda stack: stack.first.series_number)


def _rank(stack: Stack, prefer: str | None) -> tuple[float, float]:
    """Return what orders images by the rule ``prefer``: the image of the highest rank is taken."""
    if prefer == "largest":
        return float(np.prod(stack.shape)), 0.0
    head = stack.first
    # For the first image, the earliest time must rank highest. The series number decides if two
    # images have the same time.
    sign = -1.0 if prefer == "first" else 1.0
    return sign * (head.acquisition_time or 0.0), sign * head.series_number
