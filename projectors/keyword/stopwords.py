"""Words too common to ask for: dropped from queries, never from documents."""

# The closed classes of English: articles, pronouns, auxiliaries, prepositions, question words. No
# noun, main verb or adjective is among them, so a query never loses what it is about.
ENGLISH = frozenset(
    """
    a an the this that these those here there
    i me my mine myself we us our ours ourselves you your yours yourself he him his himself
    she her hers herself it its itself they them their theirs themselves
    what when where which who whom whose why how
    am is are was were be been being do does did doing done have has had having
    can could may might must shall should will would
    not no nor and or but if then else than so because as while until though
    of at by for with about into through during before after to from in out on off over under
    up down between against again
    just only also too very such some any each all both more most other same own ever
    dont didnt doesnt isnt arent wasnt werent cant cannot couldnt wont wouldnt shouldnt
    havent hasnt hadnt
    """.split()  # noqa: SIM905 - a list of quoted words would hide the words
)

# Signs that stand alone only as grammar (particles). As a query by themselves they would match
# nearly every record of their language and say nothing.
SIGNS = frozenset("的了着地得之与和及是也吗呢吧啊呀么嘛のはがをにでとへやもね은는을를의에")
