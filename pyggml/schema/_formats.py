"""The formats of strings, as regular expressions for some of their texts."""

_LABEL = "[a-z0-9]{1,20}"
_OCTET = "([0-9]|[1-9][0-9]|1[0-9][0-9]|2([0-4][0-9]|5[0-5]))"
_HEX = "[0-9a-fA-F]"
_DATE = (
    "[12][0-9]{3}-((01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|(04|06|09|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_HOURS = "([01][0-9]|2[0-3])"
_TIME = rf"{_HOURS}:[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?(Z|[+-]{_HOURS}:[0-5][0-9])"
_LOCAL_TIME = f"{_HOURS}:[0-5][0-9]:[0-5][0-9]"
_IPV4 = rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}"
_IPV6 = f"({_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}"

#: A host name with a top-level domain of letters: one of digits is read as an IP address.
HOST = rf"({_LABEL}\.){{1,3}}[a-z]{{2,6}}"
#: The path of a URL.
PATH = "(/[A-Za-z0-9._~-]{1,40}){0,5}/?"

#: Name -> pattern, which matches as a whole.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    # These two are pyggml's, for Python's times without a zone: other validators ignore them.
    "local-time": _LOCAL_TIME,
    "local-date-time": f"{_DATE}T{_LOCAL_TIME}",
    "duration": "P[1-9][0-9]{0,2}[DW]|PT[1-9][0-9]{0,2}[HMS]",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    **{
        f"uuid{version}": f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"
        for version in range(1, 9)
    },
    "hostname": HOST,
    "email": rf"{_LABEL}(\.{_LABEL})?@{HOST}",
    "uri": f"https?://{HOST}{PATH}",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "ipvanyaddress": f"{_IPV4}|{_IPV6}",
    "path": '[^\x00-\x1f\x7f"\\\\]{1,200}',
}
