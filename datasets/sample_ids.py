"""The one check that every source makes of a sample id."""


def check_sample_id(sample_id: int, num_samples: int) -> None:
    """Refuse an id that is not in 0..num_samples-1; negative ids do not count from the end.

    Raises:
        IndexError: it is outside.
    """
    if not 0 <= sample_id < num_samples:
        raise IndexError(
            f"sample_id={sample_id} is out of range: this source holds {num_samples} photographs, "
            f"with the ids 0..{num_samples - 1}."
        )
