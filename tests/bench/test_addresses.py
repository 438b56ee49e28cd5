"""What the study of addresses reads, and how it splits it."""

import pytest

from bench.studies import addresses

XML = """<AddressCollection>
  <AddressString><AddressNumber>12</AddressNumber> <StreetName>Elm</StreetName>, </AddressString>
  <AddressString><AddressNumber>12</AddressNumber> <PlaceName>Elm</PlaceName></AddressString>
  <AddressString></AddressString>
  <AddressString><PlaceName>Ames,</PlaceName> <ZipCode>50010</ZipCode></AddressString>
</AddressCollection>
"""


def test_of_equal_addresses_the_first_is_read(tmp_path):
    path = tmp_path / "labeled.xml"
    path.write_text(XML)
    assert addresses.addresses_of(path) == [
        (["12", "Elm"], ["AddressNumber", "StreetName"]),
        (["Ames,", "50010"], ["PlaceName", "ZipCode"]),
    ]


def test_a_token_is_known_by_its_word_and_by_the_shapes_around_it():
    number, street = addresses.attributes_of(["12", "Ave,"])
    assert {"word=12", "shape=00", "before edge", "after shape=Aa,"} <= set(number)
    assert {"word=ave", "length=4", "last=,", "before shape=00"} <= set(street)
    assert not any(each.startswith("after word") for each in number)


def test_attributes_that_are_rare_in_training_are_left_out():
    often = [(["Oak", "Rd"], ["a", "b"])] * addresses.LEAST
    x, y, x_test, y_test = addresses.kept(
        [*often, (["Elm"], ["a"])], [(["Elm", "Rd"], ["a", "b"])]
    )
    assert "word=oak" in x[0][0] and "word=elm" not in x[-1][0]
    assert "word=elm" not in x_test[0][0] and "word=rd" in x_test[0][1]
    assert y[-1] == ["a"] and y_test == [["a", "b"]]


@pytest.mark.parametrize(("direction", "size"), [("one", 3), ("nine", 27)])
def test_folds_split_all_addresses(direction, size):
    every = [([str(i)], ["a"]) for i in range(30)]
    sides = addresses.folds_of(every, direction, 10)
    for train, test in sides:
        assert len(train) == size
        assert sorted(train + test) == sorted(every)
    drawn = [address for train, _ in sides for address in train]
    assert all(drawn.count(address) == size // 3 for address in every)
