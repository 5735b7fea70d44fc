from hypothesis import given
from hypothesis import strategies as st
from spes_operator.errors import ConflictError
from spes_operator.k8s.fields import merge

trees = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(
        st.integers(0, 2), st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), min_size=1)
    ),
    max_size=3,
)


@given(first=trees, second=trees)
def test_an_alone_owner_gets_exactly_what_it_applied_last(first, second):
    obj, owners = merge({}, {}, "hub", {"spec": first} if first else {})
    obj, _ = merge(obj, owners, "hub", {"spec": second} if second else {})
    assert obj == ({"spec": second} if second else {})


@given(mine=trees, theirs=trees)
def test_another_owner_never_changes_my_fields(mine, theirs):
    obj, owners = merge({}, {}, "me", {"mine": mine})
    try:
        after, _ = merge(obj, owners, "they", {"mine": theirs})
    except ConflictError:
        return
    for path in owners["me"]:
        before, now = obj, after
        for key in path:
            before, now = before[key], now[key]
        assert now == before
