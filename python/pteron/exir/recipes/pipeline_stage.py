"""What a stage of a pipeline is, and what it hands on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pteron.exir.recipes.recipe_parts import StageType


class PipelineArtifact:
    """What a stage made (`data`), and what every stage may read (`context`)."""

    def __init__(self, data: Any, context: Mapping[str, Any]) -> None:
        self.data = data
        self.context = dict(context)

    def add_context(self, key: str, value: Any) -> None:
        """Leave something for later stages, or for the reader of the artifact."""
        self.context[key] = value

    def get_context(self, key: str, default: Any = None) -> Any:
        """What is under a key; `default` where nothing is."""
        return self.context.get(key, default)

    def copy_with_new_data(self, new_data: Any) -> PipelineArtifact:
        """The same context with other data."""
        return PipelineArtifact(new_data, self.context)


class Stage(ABC):
    """A step of a pipeline. A class of one's own is registered with `ExportSession.register_stage`."""

    _artifact: PipelineArtifact | None = None

    @property
    @abstractmethod
    def stage_type(self) -> StageType:
        """Its place in the pipeline."""

    @property
    @abstractmethod
    def valid_predecessor_stages(self) -> list[StageType]:
        """The stages that it can follow; none for any."""

    @property
    @abstractmethod
    def can_start_pipeline(self) -> bool:
        """Whether a pipeline can begin with it."""

    @abstractmethod
    def run(self, artifact: PipelineArtifact) -> None:
        """Work on what the stage before made, and set `_artifact`."""

    def get_artifacts(self) -> PipelineArtifact:
        """What `run` made. RuntimeError before it ran."""
        if self._artifact is None:
            raise RuntimeError(f"Stage: {type(self).__name__} not executed")
        return self._artifact


class PlacedStage(Stage):
    """A stage whose place is stated by class variables."""

    TYPE: ClassVar[StageType]
    AFTER: ClassVar[tuple[StageType, ...]] = ()
    CAN_START: ClassVar[bool] = False

    @property
    def stage_type(self) -> StageType:
        """Its place in the pipeline."""
        return self.TYPE

    @property
    def valid_predecessor_stages(self) -> list[StageType]:
        """The stages that it can follow; none for any."""
        return list(self.AFTER)

    @property
    def can_start_pipeline(self) -> bool:
        """Whether a pipeline can begin with it."""
        return self.CAN_START
