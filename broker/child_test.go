package broker_test

const childVariable = "COUNTERSIGN_BROKER_CHILD"

func child() {}
