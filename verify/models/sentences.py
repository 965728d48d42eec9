"""What the real-weights studies read: a dozen ordinary sentences of our own, and one in Japanese.

Guarantees: fixed, so that studies repeat. Does not: represent any corpus; the Japanese one shows what an English
vocabulary makes of a language it was not made for.
"""

ENGLISH = (
    "The last train of the evening left the station ten minutes late, because a door in the third car would not close.",
    "She folded the letter twice, put it back into its envelope, and decided to answer it only after dinner.",
    "If the water boils before the rice is washed, turn the heat down and wait; nothing good comes of hurrying.",
    "Our neighbour's dog knows the sound of every bicycle in the street and barks only at the ones it has never heard.",
    "The committee will meet again on Thursday to discuss the bridge, the budget, and the noise from the new road.",
    "Nobody could say who had painted the small picture above the stairs, or why it had been hung so high.",
    "A gas expands when it is heated, so a balloon that is tied in a cold room may burst when it is carried outside.",
    "He learned to play the violin at forty, practised every morning before work, and never performed for anyone.",
    "The map showed a path along the river, but the path had been washed away in the spring and not yet rebuilt.",
    "When the lights went out, the children were delighted, the cat was indifferent, and the cook was furious.",
    "To repair a puncture, find the hole, clean the rubber around it, apply the glue, and press the patch down firmly.",
    "The library lends tools as well as books, and on Saturdays there is always a queue for the long ladder.",
)
JAPANESE = "図書館の前で友人を待ちながら、昨日読んだ本のことを考えていた。"
