"""The egress guard: the table of right answers, every refused network, hostile URLs, agreement with the HTTP client."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pyreqwest.http import Url

from execution.dispatch.egress import Verdict, judge, judge_syntax, parse_networks
from execution.dispatch.networks import why_refused
from tests.unit.cases import rows

PUBLIC = "93.184.215.14"


def resolving(*addresses: str) -> Callable[[str], Sequence[str]]:
    return lambda _host: addresses


def look(url: str, *addresses: str, allow: Sequence[str] = ()) -> Verdict:
    return judge(url, resolving(*(addresses or (PUBLIC,))), allow=parse_networks(allow))


@pytest.mark.parametrize("row", rows("ssrf"))
def test_a_url_is_judged_as_the_table_says(row: dict[str, Any]) -> None:
    verdict = judge(row["url"], resolving(*row.get("resolves_to", ())))
    if "redirect_to" in row:
        # Redirects are not followed; that the target would be refused as well is a second wall.
        assert verdict.allowed
        verdict = judge(row["redirect_to"], resolving(*row["resolves_to"]))
    assert verdict.allowed == (row["expect"] == "allowed")
    assert bool(verdict.reason) != verdict.allowed
    assert (verdict.address is not None) == verdict.allowed


# --- addresses -------------------------------------------------------------------------------------------------------

REFUSED_RANGES = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/29", "192.0.0.170/31", "192.0.0.192/32", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "255.255.255.255/32", "::/128", "::1/128", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b:1::/48",
    "64:ff9b::7f00:0/104", "64:ff9b::a00:0/104", "64:ff9b::a9fe:0/112", "64:ff9b::a83f:8110/128",
    "64:ff9b::e000:0/100", "100::/64", "100:0:0:1::/64", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:5::/32",
    "2001:1::/128", "2001:1::4/128", "2001:40::/26", "2001:1ff::/32", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "8000::/1",
]  # fmt: skip
NEIGHBOURS = [
    "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
    "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
    "192.0.0.9", "192.0.0.10", "192.0.3.0", "192.31.196.1", "192.52.193.1", "192.88.98.255", "192.88.100.0",
    "192.167.255.255", "192.169.0.0", "192.175.48.1", "198.17.255.255", "198.20.0.0", "198.51.99.255",
    "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "2000::", "2001:1::1", "2001:1::2",
    "2001:1::3", "2001:3::1", "2001:4:112::1", "2001:20::1", "2001:30::1", "2001:200::", "2001:db7:ffff::",
    "2001:db9::", "2001:ffff::", "2003::", "2620:4f:8000::1", "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "3ffe:ffff::", "3fff:1000::",
]  # fmt: skip


def written(address: str) -> str:
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


@pytest.mark.parametrize("network", REFUSED_RANGES)
def test_no_address_of_a_special_network_is_called(network: str) -> None:
    exact = ip_network(network)
    for address in {exact[0], exact[exact.num_addresses // 2], exact[-1]}:
        literal = look(written(str(address)))
        assert not literal.allowed, address
        assert literal.address is None
        for answers in ([str(address)], [PUBLIC, str(address)], [str(address), PUBLIC]):
            assert not look("https://hooks.example.com/", *answers).allowed, answers


@pytest.mark.parametrize("address", NEIGHBOURS)
def test_public_addresses_beside_them_are_called(address: str) -> None:
    verdict = look(written(address))
    assert verdict.allowed, verdict.reason
    assert verdict.address == str(ip_address(address))
    assert look("https://hooks.example.com/", address).address == verdict.address


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_no_better_inside_an_ipv6_form(address: IPv4Address) -> None:
    number = int(address)
    if why_refused(address) is not None:
        for carrier in (number, (0xFFFF << 32) | number, (0x64FF9B << 96) | number, (0x2002 << 112) | (number << 80)):
            assert why_refused(IPv6Address(carrier)) is not None


@given(st.ip_addresses(v=6))
@example(IPv6Address("2002:7f00:1::"))
def test_only_global_unicast_and_public_nat64_are_called_over_ipv6(address: IPv6Address) -> None:
    if why_refused(address) is None:
        assert address in IPv6Network("2000::/3") or address in IPv6Network("64:ff9b::/96")


def test_an_address_with_a_zone_is_never_public() -> None:
    assert why_refused(IPv6Address("2606:2800::1%eth0")) == "with a zone"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "fe80::1%eth0",
        "2606:2800::1%1",
        "127.1",
        "0x7f000001",
        "093.184.215.14",
        " 93.184.215.14",
        "hooks",
        None,
        7,
        b"x",
    ],
)
def test_an_answer_of_the_resolver_that_is_no_plain_address_refuses(answer: Any) -> None:
    assert not judge("http://hooks.example.com/", lambda _host: [answer]).allowed
    assert not judge("http://hooks.example.com/", lambda _host: [PUBLIC, answer]).allowed


@pytest.mark.parametrize("answer", [None, 5, PUBLIC])
def test_an_answer_of_the_resolver_that_is_no_list_of_addresses_refuses(answer: Any) -> None:
    assert not judge("http://hooks.example.com/", lambda _host: answer).allowed


@pytest.mark.parametrize("error", [OSError, UnicodeError, RuntimeError, TimeoutError, KeyError])
def test_a_resolver_that_fails_refuses(error: type[Exception]) -> None:
    def fail(_host: str) -> Sequence[str]:
        raise error("no")

    assert not judge("http://hooks.example.com/", fail).allowed


def test_the_first_answer_is_the_address_to_connect_to_and_refusals_do_not_tell_what_was_found() -> None:
    assert look("http://hooks.example.com/", "1.1.1.1", PUBLIC).address == "1.1.1.1"
    assert "10.0.0.5" not in look("http://hooks.example.com/", "10.0.0.5").reason


def test_the_resolver_is_asked_once_for_a_name_in_ascii_and_never_for_an_address() -> None:
    asked: list[str] = []

    def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        return [PUBLIC]

    for url in ("http://B\u00dccher.Example./", "http://8.8.8.8/", "http://127.1/", "http://[2606:2800::1]/"):
        judge(url, resolve)
    assert asked == ["xn--bcher-kva.example"]


# --- the allow-list --------------------------------------------------------------------------------------------------


def test_an_allowed_network_lets_its_addresses_through_and_no_others() -> None:
    assert look("http://127.0.0.1:8000/", allow=["127.0.0.0/8"]).address == "127.0.0.1"
    assert look("http://127.1:8000/", allow=["127.0.0.0/8"]).url == "http://127.0.0.1:8000/"
    assert look("http://[::1]:8000/", allow=["::1/128"]).address == "::1"
    assert look("http://inner/", "10.1.2.3", allow=["10.1.2.3/32"]).address == "10.1.2.3"
    assert not look("http://inner/", "10.1.2.4", allow=["10.1.2.3/32"]).allowed
    assert not look("http://inner/", "10.1.2.3", "10.1.2.4", allow=["10.1.2.3/32"]).allowed
    assert look("http://inner/", "10.1.2.3", PUBLIC, allow=["10.1.2.3/32"]).allowed
    assert not look("http://localhost/", "127.0.0.1", "::1", allow=["127.0.0.0/8"]).allowed


@pytest.mark.parametrize("literal", ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"])
def test_an_allowed_ipv4_network_opens_no_ipv6_form_of_it(literal: str) -> None:
    assert not look(f"http://[{literal}]/", allow=["127.0.0.0/8"]).allowed
    assert look(f"http://[{literal}]/", allow=[f"{literal}/128"]).allowed


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:22/", "http://u@127.0.0.1/", "http://0177.0.0.1/", "ftp://127.0.0.1/"]
)
def test_an_allowed_network_changes_no_other_rule(url: str) -> None:
    assert not look(url, allow=["0.0.0.0/0"]).allowed


def test_an_allow_list_is_read_as_exact_networks() -> None:
    assert parse_networks([]) == ()
    assert parse_networks(["10.0.0.0/8", "::1/128"]) == (ip_network("10.0.0.0/8"), ip_network("::1/128"))


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.1/8", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255", "10/8",
     "localhost", "::1/64", "fe80::%eth0/64", " 10.0.0.0/8", "10.0.0.0/8,", "010.0.0.0/8", "10.0.0.0/\u0668"],
)  # fmt: skip
def test_an_entry_that_is_no_exact_network_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an exact network: .*\.$"):
        parse_networks(["10.0.0.0/8", text])


# --- syntax ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "", "http", "http:", "http:/", "http://", "http:///", "http:///a.example/", "http:a.example", "http:/a.example",
        "//a.example/", "a.example", "a.example:80", "https//a.example", "http\u017f://a.example/", "http\uff1a//a/",
        "ftp://a.example/", "file:///etc/hosts", "gopher://a/", "javascript:alert(1)", "data:,x", "unix:///run/x",
        "ws://a.example/", "http+unix://a/", " http://a.example/", "http://a.example/ ", "\ufeffhttp://a.example/",
        "http://a .example/", "http://a.example/x y", "http://a.example/\u00a0", "http://a.example/\u3000x",
        "http://a.example/\u2028", "http://a.example/\x85", "http://a.example/\x7f", "http://a.example/\x00",
        "http://a.example\t/", "http://a.example/?q=\n", "http://a.example/#\r", "http://a.example/\ud800",
        "http://a.example\\b/", "http://a.example/\\", "http://a.example/?\\", "http://a.example/#\\",
        "http://@a.example/", "http://:@a.example/", "http://u@a.example/", "http://u:p@a.example/", "http://a@b@c/",
        "http://127.0.0.1:80@a.example/", "http://a.example%40b/", "http://a\uff20b.example/",
        "http://%61.example/", "http://a.example%00/", "http://a\uff05b/", "http://a%2eexample/",
        "http://a.example:/", "http://a.example:80:80/", "http://a.example:8o/", "http://a.example:-1/",
        "http://a.example:+80/", "http://a.example:0/", "http://a.example:1/", "http://a.example:81/",
        "http://a.example:444/", "http://a.example:1023/", "http://a.example:65536/", "http://a.example:99999/",
        "http://a.example:100080/", "http://a.example:\u0668\u0660/", "http://a.example:8_0/",
        "http://.a.example/", "http://a..example/", "http://a.example../", "http://./", "http://../",
        "http://-a.example/", "http://a-.example/", "http://a*b.example/", "http://a,b/", "http://a'b/", "http://a$b/",
        "http://a|b/", "http://a<b/", "http://a^b/", "http://a{b}/", "http://a\uff0fb.example/", "http://\u2100.example/",
        "http://xn--/", "http://xn--a/", "http://xn--a-/", "http://xn--a-ecp.example/", "http://xn--\u00fc/",
        "http://a\u00adb.example/", "http://a\u200bb.example/", "http://a\u200db.example/", "http://a\u202eb.example/",
        f"http://{'a' * 64}.example/", "http://" + "\u00fc" * 60 + ".example/", f"http://{'a.' * 126}aa/",
        "http://" + "\ufdfa" * 200 + "/", f"http://a.example/{'a' * 8000}",
        "http://[]/", "http://[::1", "http://::1]/", "http://[::1]x/", "http://x[::1]/", "http://[[::1]]/",
        "http://2606:2800::1/", "http://[2606:2800::1%25eth0]/", "http://[2606:2800::1%eth0]/", "http://[v1.a]/",
        "http://[8.8.8.8]/", "http://[2606:2800::1::]/", "http://[2606:2800::1]:22/", "http://[2606:2800::08.8.8.8]/",
    ],
)  # fmt: skip
def test_a_url_that_can_be_misread_is_refused(url: str) -> None:
    verdict = look(url)
    assert not verdict.allowed, verdict
    assert verdict == Verdict(False, verdict.reason)
    assert judge_syntax(url) == verdict


@pytest.mark.parametrize("url", [None, 5, b"http://a.example/", ["http://a.example/"], {}])
def test_what_is_no_text_is_refused(url: Any) -> None:
    assert not judge(url, resolving(PUBLIC)).allowed
    assert not judge_syntax(url).allowed


@pytest.mark.parametrize(
    ("url", "sent", "host", "port"),
    [
        ("http://a.example", "http://a.example/", "a.example", 80),
        ("HTTPS://A.Example:443?x#y", "https://a.example/?x", "a.example", 443),
        ("http://a.example:443/", "http://a.example:443/", "a.example", 443),
        ("https://a.example:80/", "https://a.example:80/", "a.example", 80),
        ("http://a.example:00080/", "http://a.example/", "a.example", 80),
        ("http://a.example:1024/", "http://a.example:1024/", "a.example", 1024),
        ("http://a.example:65535/", "http://a.example:65535/", "a.example", 65535),
        ("http://a.example./", "http://a.example/", "a.example", 80),
        ("http://a.example//b/../c", "http://a.example//c", "a.example", 80),
        ("http://a.example/@b:c", "http://a.example/@b:c", "a.example", 80),
        ("http://a.example?u@b/c", "http://a.example/?u@b/c", "a.example", 80),
        ("http://a.example#@b", "http://a.example/", "a.example", 80),
        ("http://a.example/\u00fc?\u00fc", "http://a.example/%C3%BC?%C3%BC", "a.example", 80),
        ("http://a.example/%0d%0a%zz", "http://a.example/%0d%0a%zz", "a.example", 80),
        ("http://fa\u00df.example/", "http://xn--fa-hia.example/", "xn--fa-hia.example", 80),
        ("http://XN--BCHER-KVA.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        (
            "http://\u4f8b\u3048\u3002\u30c6\u30b9\u30c8/",
            "http://xn--r8jz45g.xn--zckzah/",
            "xn--r8jz45g.xn--zckzah",
            80,
        ),
        ("http://\uff21.example/", "http://a.example/", "a.example", 80),
        ("http://my_service:8000/", "http://my_service:8000/", "my_service", 8000),
        ("http://r4---sn-x.example/", "http://r4---sn-x.example/", "r4---sn-x.example", 80),
        ("http://1.2.3.4a/", "http://1.2.3.4a/", "1.2.3.4a", 80),
        (f"http://{'a' * 63}.example/", f"http://{'a' * 63}.example/", f"{'a' * 63}.example", 80),
        (f"http://{'a.' * 126}a./", f"http://{'a.' * 126}a/", f"{'a.' * 126}a", 80),
        ("http://[2606:2800:0:0::0001]/", "http://[2606:2800::1]/", "[2606:2800::1]", 80),
        ("https://[2606:2800::0.0.0.1]:8443/", "https://[2606:2800::1]:8443/", "[2606:2800::1]", 8443),
    ],
)
def test_a_readable_url_is_sent_in_its_normal_form(url: str, sent: str, host: str, port: int) -> None:
    verdict = look(url)
    assert verdict.allowed, verdict.reason
    assert (verdict.url, verdict.host, verdict.port) == (sent, host, port)
    assert verdict.scheme == url.split(":")[0].lower()
    assert look(verdict.url) == verdict


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("1572395022", "93.184.216.14"), ("0x5db8d80e", "93.184.216.14"), ("0X5DB8D80E", "93.184.216.14"),
        ("0x5d.184.0xd8.14", "93.184.216.14"), ("93.184.55310", "93.184.216.14"), ("93.12113934", "93.184.216.14"),
        ("01.2.3.4", "1.2.3.4"), ("1.2.3.00", "1.2.3.0"),
    ],
)  # fmt: skip
def test_an_odd_form_with_one_meaning_is_judged_and_sent_as_that_address(host: str, address: str) -> None:
    verdict = look(f"http://{host}/")
    assert (verdict.address, verdict.host, verdict.url) == (address, address, f"http://{address}/")


@pytest.mark.parametrize(
    "host",
    [
        "010.8.8.8", "8.8.8.010", "08.8.8.8", "8.8.8.09", "8.8.8.8.", "0x", "8.8.8.0x", "0x.8", "0xg.8", "8.8.8.256",
        "256.8.8.8", "8.8.65536", "8.16777216", "4294967296", "0x100000000", "9" * 63, "8.8.8.8.8", "8.8.8.8.0", "a.8",
        "8.8.8.a.8", "a.0x8", "8.8.8.-8", "\u2467.8.8.8", "\uff18.8.8.8", "8\u30028.8.8", "012.1", "00000000010.1.1.1",
    ],
)  # fmt: skip
def test_a_form_of_an_address_that_readers_read_differently_is_refused(host: str) -> None:
    assert not look(f"http://{host}/").allowed


def test_saving_checks_all_but_where_a_name_leads() -> None:
    verdict = judge_syntax("https://hooks.example.com/in")
    assert verdict.allowed
    assert verdict.address is None
    assert judge_syntax("http://8.8.8.8/").address == "8.8.8.8"
    assert not judge_syntax("http://127.1/").allowed
    assert judge_syntax("http://127.1/", allow=parse_networks(["127.0.0.0/8"])).allowed


# --- agreement with the client ---------------------------------------------------------------------------------------

HOSTILE = st.lists(
    st.sampled_from(
        [
            *"ab019.:/@#?[]%\\_- \t\r\n\x00xX\u3002\uff0e\u2460\u00df\u0660\u200d\u00ad\u0130\u212a",
            *("xn--", "example", "127.0.0.1", "::1", "0x7f", "http://", ":80", ":8080"),
        ]
    ),
    max_size=12,
).map("".join)


@given(
    st.sampled_from(["http://", "https://", "HTTP://", ""]),
    HOSTILE | st.text(max_size=30),
    st.sampled_from(["", "/", "/x?y"]),
)
@example("http://", "a\u0130b", "/")
@example("http://", "1.\u05d0", "/")
def test_no_url_makes_it_raise_and_what_is_allowed_is_what_the_client_calls(scheme: str, rest: str, tail: str) -> None:
    url = scheme + rest + tail
    verdict = look(url)
    if not verdict.allowed:
        assert verdict == Verdict(False, verdict.reason)
        return
    sent, typed = Url(verdict.url), Url(url)
    assert sent.host_str == verdict.host
    assert sent.port_or_known_default == typed.port_or_known_default == verdict.port
    assert sent.scheme == verdict.scheme
    assert not sent.fragment
    assert verdict.url.isascii()
    # The client would have read what was typed in the same way, but for the dot of an absolute name.
    assert (typed.host_str or "").removesuffix(".") == verdict.host
    assert look(verdict.url) == verdict


def spelled(number: int, parts: int, base: str) -> str:
    heads = [(number >> (24 - 8 * position)) & 0xFF for position in range(parts - 1)]
    last = number & ((1 << (8 * (5 - parts))) - 1)
    return ".".join(format(value, base) for value in (*heads, last))


@given(st.ip_addresses(v=4), st.integers(1, 4), st.sampled_from(["d", "#x", "#X", "04d", "012d"]))
def test_every_spelling_of_an_ipv4_address_is_judged_as_the_client_reads_it_or_refused(
    address: IPv4Address, parts: int, base: str
) -> None:
    url = f"http://{spelled(int(address), parts, base)}/"
    verdict = look(url)
    if verdict.allowed:
        assert Url(url).host_str == Url(verdict.url).host_str == verdict.address
        assert why_refused(ip_address(str(verdict.address))) is None
    elif not base.startswith("0"):
        assert why_refused(address) is not None


@given(st.ip_addresses(v=6))
def test_an_ipv6_literal_is_judged_as_the_client_reads_it(address: IPv6Address) -> None:
    assume(why_refused(address) is None)
    for text in (str(address), address.exploded, address.exploded.upper()):
        verdict = look(f"http://[{text}]:8080/")
        assert verdict.address == str(address)
        assert ip_address((Url(verdict.url).host_str or "").strip("[]")) == address
