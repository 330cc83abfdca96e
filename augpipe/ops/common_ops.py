"""What several ops have in common: a factor that is drawn, or only whether they are applied."""

from typing import Annotated

from augpipe.ops.draws import Applied, FactorsWithin, Number
from augpipe.ops.op import Op, Probability, Range

Factors = Annotated[Range, FactorsWithin(0.0, 100.0)]


class FactorOp(Op):
    """An op that draws a factor, of which 1 changes nothing."""

    factor: Factors = (0.6, 1.4)
    """Smallest and largest factor; 1 changes nothing."""
    step: float | None = None
    """From one factor to the next; None for any factor."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Number("factor", step="step", neutral=1.0),)
    inspect_text = "{op} times {factor[0]:g} to {factor[1]:g}{steps}"


class SwitchOp(Op):
    """An op that is applied or not, and draws no more."""

    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Applied(),)
