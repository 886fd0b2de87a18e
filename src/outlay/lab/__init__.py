"""Small language models that the project trains itself, and the script that trains them."""
