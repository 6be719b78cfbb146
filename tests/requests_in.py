"""The requests in a stream of bytes, for receivers of thousands a second: as much of HTTP/1.1 as the engine writes."""


def split_requests(data: bytes) -> tuple[list[bytes], bytes]:
    """The heads of the requests that are whole (without their end), and the bytes of the one that is not."""
    heads, start = [], 0
    while (end := data.find(b"\r\n\r\n", start)) >= 0:
        head = data[start:end]
        place = head.lower().find(b"\r\ncontent-length:")
        length = int(head[place + 17 :].split(b"\r", 1)[0]) if place >= 0 else 0
        if len(data) < end + 4 + length:
            break
        heads.append(head)
        start = end + 4 + length
    return heads, data[start:]
