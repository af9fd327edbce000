"""Identifies the known model that a job trains, by the number of its parameters and their tensors, and gives the FLOPs of one sample.

The table is torchvision's: names, parameters and multiply-adds of its models (`_ops` of their weights), counted with
torch.utils.flop_counter. Another number of classes changes only the last layer, so the model is still recognised. For other image sizes
convolutions scale with the area, accurate to 1 % down to 32×32; work that does not grow with the image has its own column.
"""

from __future__ import annotations

import csv
import functools
import io
from dataclasses import dataclass
from importlib.resources import files

_CLASSES = 1000
_CLASSES_MAX = 50_000
_SIZE = 224
# Forward, and the same again for the gradients of inputs and of weights; a multiply-add counts as two operations.
TRAINING_TIMES = 3.0
_OPERATIONS = 2.0


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model. `gmac`: 10⁹ multiply-adds of a forward pass at 224×224, of which `fixed_gmac` do not depend on the image size."""

    name: str
    tensors: int
    parameters: int
    head_inputs: int
    gmac: float
    fixed_gmac: float
    resizable: bool

    def flops_per_sample(self, height: int, width: int) -> float | None:
        """FLOPs to train on one image; None for a size that the table does not cover."""
        if (height, width) == (_SIZE, _SIZE):
            gmac = self.gmac
        elif self.resizable and height >= 32 and width >= 32:
            gmac = self.fixed_gmac + (self.gmac - self.fixed_gmac) * height * width / _SIZE**2
        else:
            return None
        return TRAINING_TIMES * _OPERATIONS * gmac * 1e9


def known_model(tensors: int, parameters: int) -> KnownModel | None:
    """Returns the model with this number of trained tensors and parameters; None if the table has none or several."""
    found = [model for model in known_models() if model.tensors == tensors and _fits(model, parameters)]
    return found[0] if len(found) == 1 else None


def _fits(model: KnownModel, parameters: int) -> bool:
    """True if the model has this number of parameters with any number of classes; each class has a row of weights and a bias."""
    each = model.head_inputs + 1
    classes, rest = divmod(parameters - (model.parameters - _CLASSES * each), each)
    return rest == 0 and 1 <= classes <= _CLASSES_MAX


@functools.cache
def known_models() -> tuple[KnownModel, ...]:
    text = (files(__package__) / "models.csv").read_text(encoding="utf-8")
    return tuple(_model(row) for row in csv.DictReader(io.StringIO(text)))


def _model(row: dict[str, str]) -> KnownModel:
    return KnownModel(
        name=row["model"],
        tensors=int(row["tensors"]),
        parameters=int(row["parameters"]),
        head_inputs=int(row["head_inputs"]),
        gmac=float(row["gmac"]),
        fixed_gmac=float(row["fixed_gmac"]),
        resizable=row["resizable"] == "yes",
    )
