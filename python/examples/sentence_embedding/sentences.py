"""The sentences that the demo embeds: short and long, in three groups of related meaning."""

SENTENCES = (
    "A cat sits on the warm window sill.",
    "The kitten is resting by the window in the sun.",
    "Stock markets fell sharply after the announcement.",
    "Shares dropped today when the central bank raised its interest rate.",
    "How do I install a Python package?",
    "To add a library to your environment, run pip install followed by its name; if that fails, check "
    "that the interpreter you call is the one whose environment you activated, and that the index can be "
    "reached from the machine you are working on.",
)
