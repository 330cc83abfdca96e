"""What planning costs: drawing a batch's numbers, composing them, and making the kernel's table."""

from common import in_turn, save, summary

from augpipe import plan, recipes
from augpipe.planning.kernel_rows import dct_factors, kernel_rows

BATCH_SIZES = (32, 256, 1024)
REPEATS = 20
ROUNDS = 25


def main() -> None:
    recipe = recipes.deep_image()
    contenders = {}
    for num in BATCH_SIZES:
        sizes = [(375, 500)] * num

        def draw(num: int = num, sizes: list[tuple[int, int]] = sizes) -> int:
            for epoch in range(REPEATS):
                plan(recipe, range(num), sizes=sizes, epoch=epoch)
            return num * REPEATS

        def whole(num: int = num, sizes: list[tuple[int, int]] = sizes) -> int:
            for epoch in range(REPEATS):
                made = plan(recipe, range(num), sizes=sizes, epoch=epoch)
                kernel_rows(made.rows, dct_factors(made.views))
            return num * REPEATS

        contenders[f"plan, batch of {num}"] = draw
        contenders[f"plan and kernel table, batch of {num}"] = whole
    seconds = in_turn(contenders, ROUNDS)
    save(
        "planning", {"what": "microseconds an image, deep_image (goal: under 2)", "microseconds": summary(seconds, 1e6)}
    )


if __name__ == "__main__":
    main()
