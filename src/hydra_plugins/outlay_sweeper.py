"""Outlay's sweeper, where Hydra looks for one: this namespace package. The work is `outlay.multirun.run_sweep`."""

from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class GridSweeper(Sweeper):
    """The union of a preset's grids under one tracked parent."""

    config: DictConfig
    launcher: Launcher

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from outlay.multirun import run_sweep

        return run_sweep(arguments, self.launcher, Path(self.config.hydra.sweep.dir))
