"""Operations: long actions on what a filter finds, done in steps by a task. Rooms above register their kinds."""
