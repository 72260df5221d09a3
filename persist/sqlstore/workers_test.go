package sqlstore

func work() {}
